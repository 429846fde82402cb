"""Prompts of our own writing for the text that a draft learns from: subjects times tasks, chosen by a seed.

Held-out prompts are about other subjects than those trained on, so that no reply is seen twice. Knows no model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

KINDS = ("chat", "code", "summary", "copy", "story")
# Out of ten prompts; the rest of what people send is chat.
WEIGHTS = {"chat": 5, "code": 2, "summary": 1, "copy": 1, "story": 1}

TRAINED_SUBJECTS = """
the water cycle; photosynthesis; volcanoes; the moon's phases; magnets; electric motors; batteries; solar panels; wind
power; the human heart; the immune system; vitamins; sleep; stress; exercise; healthy breakfasts; bread baking; coffee
brewing; tea; cheese making; pasta; soups; vegetable gardens; houseplants; composting; bees; ants; wolves; owls;
dolphins; whales; sharks; elephants; cats; dogs; horses; dinosaurs; fossils; earthquakes; hurricanes; deserts;
rainforests; coral reefs; glaciers; rivers; the Roman Empire; ancient Egypt; the Silk Road; the printing press; the
steam engine; the industrial revolution; railways; aeroplanes; bicycles; electric cars; bridges; skyscrapers; maps;
calendars; clocks; money; banks; taxes; budgets; insurance; job interviews; time management; public speaking;
teamwork; leadership; negotiation; writing essays; learning a language; reading habits; note taking; mathematics;
fractions; percentages; probability; prime numbers; triangles; statistics; algebra; computers; operating systems;
databases; the internet; search engines; passwords; encryption; computer networks; web pages; machine learning; neural
networks; robots; video games; photography; painting; sculpture; music theory; the piano; guitars; opera; film making;
theatre; poetry; fairy tales; chess; football; swimming; yoga; hiking; camping; travel on a small budget; hotels;
airports; recycling; plastic waste; clean water; climate change; endangered species; city parks; public transport
"""
HELD_SUBJECTS = """
rainbows; tides; lightning; the planet Mars; telescopes; microscopes; lungs; teeth; headaches; running shoes; rice;
chocolate; roses; butterflies; penguins; bears; islands; caves; the Vikings; castles; the telephone; ships; tunnels;
lighthouses; savings; remote work; spelling; geometry; spreadsheets; email; chatbots; drones; drawing; violins;
museums; tennis; skiing; trains; food waste; winter clothing
"""
CHAT_TASKS = (
    "What is the most important thing to know about {0}?",
    "Explain {0} to a ten-year-old.",
    "Explain {0} in simple terms.",
    "Give me five facts about {0}.",
    "List three advantages and three disadvantages of {0}.",
    "Write a short paragraph about {0}.",
    "How has our view of {0} changed over time?",
    "Why do people care about {0}?",
    "What are common mistakes when dealing with {0}?",
    "Write a short email to a friend about {0}.",
    "I am new to {0}. Where should I start?",
    "What is the difference between {0} and {1}?",
    "Give me a step-by-step plan to learn about {0} in a week.",
    "Write three questions for a quiz about {0}, with answers.",
    "What would a teacher say about {0}?",
    "Write a blog post introduction about {0}.",
    "Can you give me some tips about {0}?",
    "How does {0} affect everyday life?",
)
STORY_TASKS = (
    "Write a short story about {0}.",
    "Write a poem about {0}.",
    "Once upon a time there was a village that was famous for {0}. Continue the story.",
    "Write a dialogue between two friends who talk about {0} and {1}.",
    "Describe a day in the life of somebody who works with {0}.",
)
TRAINED_CODE = """
adds two numbers; returns the larger of two numbers; checks whether a number is even; reverses a string; counts the
vowels in a string; checks whether a word is a palindrome; sums a list; finds the largest number in a list; removes
duplicates from a list; sorts a list of numbers; returns the factorial of a number; returns the first n Fibonacci
numbers; checks whether a number is prime; counts the words in a text; reads a file and prints its lines; writes a
list to a file; merges two dictionaries; converts Celsius to Fahrenheit; converts a string to upper case; finds the
average of a list; finds the median of a list; flattens a nested list; searches a sorted list with binary search;
counts how often each letter occurs; returns the square of each number in a list; filters the odd numbers out of a
list; joins a list of words with commas; computes the area of a circle; computes the distance between two points;
finds common elements of two lists; rotates a list by one place; transposes a matrix; multiplies two matrices;
generates a random password; validates an email address; parses a date; formats a number with two decimals
"""
HELD_CODE = """
returns the smallest of three numbers; counts the spaces in a string; checks whether a year is a leap year; returns
the last element of a list; swaps two variables; multiplies all numbers of a list; converts minutes to hours; removes
vowels from a string; finds the longest word in a sentence; computes the perimeter of a rectangle; checks whether two
strings are anagrams; splits a list into two halves
"""
CODE_TASKS = (
    "Write a Python function that {0}.",
    "Write a Python function that {0} and explain how it works.",
    "Write a Python program that {0}, with comments.",
    "Show me Python code that {0}, and a test for it.",
    "How can I write a function that {0} in JavaScript?",
)
OPENINGS = (
    "Last spring a small town opened a centre for {0}.",
    "A report on {0} was published this week.",
    "Our school started a project about {0} two years ago.",
    "The museum shows an exhibition about {0} until the end of the month.",
    "Interest in {0} has grown quickly in the last decade.",
)
MIDDLES = (
    "More than {n} people came on the first day, and most of them wanted to know how it began.",
    "It took {n} months to prepare, and the cost was higher than planned.",
    "Experts say that {0} and {1} have more in common than most people think.",
    "Children were asked to draw what they had learned, and {n} drawings now hang in the hall.",
    "Not everybody agrees: some residents would rather have spent the money on {1}.",
    "According to the organisers, the hardest part was to find volunteers with enough time.",
    "A survey of {n} visitors found that two out of three would come again.",
    "The team also wrote a guide that explains {0} in plain words.",
)
CLOSINGS = (
    "The next meeting is on Friday at {h} o'clock, and everyone is welcome.",
    "A decision about the future is expected next year.",
    "The results will be sent to all members by email.",
    "If all goes well, it will open again in the autumn.",
)
SUMMARY_TASKS = (
    "Summarize the following text in one sentence.\n\n{0}",
    "Summarise this text in two sentences:\n\n{0}",
    "What are the key points of this text?\n\n{0}",
    "{0}\n\nWhat is this text about?",
)
COPY_TASKS = (
    "Repeat the following text exactly, without any change.\n\n{0}",
    "Copy this text word for word:\n\n{0}",
    "Correct any spelling mistakes in this text and return the whole text:\n\n{0}",
    "Return the following text in full, and change nothing but the first word:\n\n{0}",
)


@dataclass(frozen=True)
class Prompt:
    """A user's message and its kind, one of KINDS."""

    kind: str
    text: str


def prompts(count: int, seed: int, *, held_out: bool = False) -> list[Prompt]:
    """So many different prompts (or as many as there are after 20 tries each), the same for the same seed."""
    chance = random.Random(f"{seed}-{held_out}")
    subjects = _listed(HELD_SUBJECTS if held_out else TRAINED_SUBJECTS)
    jobs = _listed(HELD_CODE if held_out else TRAINED_CODE)
    found: dict[str, Prompt] = {}
    for _ in range(20 * count):
        if len(found) == count:
            break
        kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        text = _text(kind, subjects, jobs, chance)
        found.setdefault(text, Prompt(kind, text))
    return list(found.values())


def _text(kind: str, subjects: list[str], jobs: list[str], chance: random.Random) -> str:
    if kind == "code":
        return chance.choice(CODE_TASKS).format(chance.choice(jobs))
    if kind in ("summary", "copy"):
        return chance.choice(SUMMARY_TASKS if kind == "summary" else COPY_TASKS).format(_passage(subjects, chance))
    return chance.choice(CHAT_TASKS if kind == "chat" else STORY_TASKS).format(*chance.sample(subjects, 2))


def _passage(subjects: list[str], chance: random.Random) -> str:
    """Four to six sentences."""
    chosen = [chance.choice(OPENINGS), *chance.sample(MIDDLES, chance.randint(2, 4)), chance.choice(CLOSINGS)]
    pair = chance.sample(subjects, 2)
    return " ".join(sentence.format(*pair, n=chance.randint(3, 900), h=chance.randint(5, 11)) for sentence in chosen)


def _listed(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split(";")]
