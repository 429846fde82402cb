"""Labs: a goal, a prediction, an experiment on the learner's own machine, and questions graded on what it measured.

Content is data (`content/ID/`, see docs/labs.md); this package reads, checks, computes, grades and keeps progress.
"""

from experiments.labs.grade import Grade, Score
from experiments.labs.lab import Lab
from experiments.labs.loader import get_lab, load_labs, read_lab
from experiments.labs.progress import DEFAULT_LEARNER, Progress
from experiments.labs.session import LabSession

__all__ = [
    "DEFAULT_LEARNER",
    "Grade",
    "Lab",
    "LabSession",
    "Progress",
    "Score",
    "get_lab",
    "grade",
    "lab",
    "load_labs",
    "read_lab",
    "report",
    "view",
    "words",
]
