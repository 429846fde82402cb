"""Nothing in the product runs what it reads: no pickles, no evaluated text, no shell, no code of a model's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ledger", "core_engine", "experiments", "app")
CELL = ROOT / "experiments" / "report" / "notebook_cell.py.txt"  # runs in a notebook that a reader opens
# Processes that this one has started itself, over a socket that only the two of them hold; nothing from elsewhere.
OWN_CHILDREN = {
    "core_engine/disaggregation/wire.py", "core_engine/disaggregation/worker.py",
    "core_engine/parallel/processes.py", "core_engine/parallel/rank.py",
}  # fmt: skip
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
OWN_SCRIPTS = {"app/main.py"}  # what they run in a browser is written out in them
RUN_TEXT = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "torch.load", "torch.save", "torch.hub.load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "os.system",
    "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "runpy.run_path", "pandas.read_pickle",
    "pd.read_pickle", "np.fromregex", "code.interact",
}  # fmt: skip
SWITCHES = {"shell", "allow_pickle", "trust_remote_code", "unsafe_allow_html", "unsafe_allow_javascript"}


def faults(tree: ast.AST) -> Iterator[str]:
    """What a module does that the product never does, as "line: what"."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            yield from (f"{line}: {name.name}" for name in node.names if name.name.partition(".")[0] in PICKLES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in PICKLES:
                yield f"{line}: {node.module}"
            yield from (f"{line}: {node.module}.{n.name}" for n in node.names if f"{node.module}.{n.name}" in CALLS)
        elif isinstance(node, ast.Call):
            yield from (f"{line}: {what}" for what in _of_call(node))


def _of_call(node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func)
    if called in RUN_TEXT | CALLS or called.removeprefix("builtins.") in RUN_TEXT:
        yield called
    for word in node.keywords:
        if word.arg in SWITCHES and not (isinstance(word.value, ast.Constant) and word.value.value is False):
            yield f"{word.arg}={ast.unparse(word.value)}"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_product_runs_nothing_that_it_reads(package: str) -> None:
    found = {
        file.relative_to(ROOT).as_posix(): told
        for file in sorted((ROOT / package).rglob("*.py"))
        if (told := list(faults(ast.parse(file.read_text("utf-8")))))
    }
    for file in OWN_SCRIPTS & found.keys():
        found[file] = [line for line in found[file] if not line.endswith(": unsafe_allow_javascript=True")]
    found = {file: told for file, told in found.items() if told}
    pickles = {file for file, told in found.items() if all(line.endswith(": pickle") for line in told)}
    assert pickles == {file for file in OWN_CHILDREN if file.startswith(package)}
    assert {file: told for file, told in found.items() if file not in pickles} == {}


@pytest.mark.parametrize("file", sorted(OWN_SCRIPTS))
def test_a_script_of_a_page_is_written_out_and_says_nothing_that_somebody_typed(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    tables = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and all(isinstance(value, ast.Constant) for value in node.value.values)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    scripts = [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(word.arg == "unsafe_allow_javascript" for word in node.keywords)
    ]
    assert scripts
    for script in scripts:
        assert isinstance(script, ast.Subscript) and ast.unparse(script.value) in tables


def test_a_reports_notebook_runs_nothing_that_it_reads() -> None:
    assert list(faults(ast.parse(CELL.read_text("utf-8")))) == []


def test_messages_of_own_children_come_over_a_socket_without_a_name() -> None:
    """Who could write there could do anything: it is a pair of which each process holds one end."""
    tree = ast.parse((ROOT / "core_engine/parallel/child.py").read_text("utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "socket.socketpair" in called and not called & {"Listener", "Client", "socket.create_server"}
    for file in OWN_CHILDREN:
        read = [
            ast.unparse(node.args[0])
            for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pickle.loads"
        ]
        assert all("control.recv_bytes()" in what or "self._in[" in what for what in read), file


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import torch\ntorch.load('x')", "from torch import load",
        "np.load('x', allow_pickle=True)", "np.load('x', allow_pickle=flag)", "yaml.load('x')", "eval('1')",
        "exec('1')", "builtins.eval('1')", "subprocess.run('ls', shell=True)", "os.system('ls')",
        "import cloudpickle.x",
        "AutoModel.from_pretrained('x', trust_remote_code=True)", "st.markdown('x', unsafe_allow_html=True)",
    ],
)  # fmt: skip
def test_the_walk_finds_what_it_looks_for(source: str) -> None:
    assert list(faults(ast.parse(source)))


def test_the_walk_leaves_alone_what_is_harmless() -> None:
    source = (
        "re.compile('x')\nyaml.safe_load('x')\nnp.load('x', allow_pickle=False)\nsubprocess.run(['ls'])\nmodel.eval()"
    )
    assert list(faults(ast.parse(source))) == []
