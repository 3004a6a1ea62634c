"""The version that changed a cell: the search itself, what tells versions apart, what is kept, and what a user gets wrong."""

from __future__ import annotations

import json

import pytest
from packaging.version import Version
from wheels import wheel

from harness.commands import trying
from harness.errors import UsageError
from harness.offline.versions import Index, Untestable
from harness.providers import registry
from harness.store.results import Result

CELL = "merge_state[tiny-t3-h1-fp32]"
PLUGIN = """
from harness.providers import implements


@implements("merge_state", library="tinyparity", name="tiny", platforms={"cpu"})
def tiny(x):
    import tinyparity

    return tinyparity.merge(x.v_a, x.s_a, x.v_b, x.s_b)
"""
RIGHT = """
import torch


def merge(v_a, s_a, v_b, s_b):
    lse = torch.logaddexp(s_a, s_b)
    parts = [torch.exp(s - lse)[..., None] * v for s, v in ((s_a, v_a), (s_b, v_b))]
    return (parts[0] + parts[1]).to(v_a.dtype), lse
"""
WRONG = RIGHT.replace("parts[0] + parts[1]", "parts[0]")
NEEDY = "import no_such_module\n" + RIGHT


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The provider of the package, known to this process while these tests run."""
    path = tmp_path_factory.mktemp("plugin") / "tiny.py"
    path.write_text(PLUGIN)
    yield path
    registry._providers.pop(("merge_state", "tiny"), None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of wheels 1.0 to 1.4, of which 1.1 is broken and 1.2 needs what is not there; the change comes with 1.3."""
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "wheels"
    for version, text in {"1.0": RIGHT, "1.2": NEEDY, "1.3": WRONG, "1.4": WRONG, "1.5rc1": WRONG}.items():
        wheel(made, version, text)
    wheel(made, "1.1", RIGHT).write_bytes(b"no zip file")
    return made


@pytest.fixture
def bisect(typed, folder, plugin):
    def run(*more: str, cell: str = CELL):
        return typed("bisect", cell, "--plugin", str(plugin), "--platform", "cpu", "--find-links", str(folder), *more)

    return run


@pytest.fixture
def ran(monkeypatch):
    """Answers for each version instead of running it, and counts."""
    asked: list[str] = []
    answers: dict[str, Result | str] = {}

    def run(self, version, installed):
        asked.append(version)
        answer = answers[version]
        if isinstance(answer, str):
            raise Untestable(answer)
        return answer

    monkeypatch.setattr(trying.Trial, "_run", run)
    monkeypatch.setattr(trying.Trial, "_device", {})
    monkeypatch.setattr(trying.Trial, "_imports", lambda self, version, found: None)
    monkeypatch.setattr(Index, "install", lambda self, version: self.root)
    monkeypatch.setattr(Index, "_listed", lambda self, pre: {Version(f"1.{minor}"): f"1.{minor}" for minor in range(5)})
    return asked, answers


def row(status: str = "pass", reason: str = "", **more) -> Result:
    return Result(CELL, "merge_state", "tiny", "t3-h1-fp32", status, "cpu", "executed", reason=reason, versions=trying.versions(), **more)


# ---- the whole of it ----


def test_the_change_is_found_among_versions_that_cannot_be_tried(bisect):
    code, out, err = bisect("--good", "1.0", "--bad", "1.3")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["good", "1.0", "pass"]
    assert lines[1].split() == ["bad", "1.3", "mismatch:", "numerics"]
    tried = {line.split()[1]: line for line in lines[2:4]}
    assert tried["1.2"].split(maxsplit=2) == ["skipped", "1.2", "needs no_such_module, which is not installed here"]
    assert tried["1.1"].startswith("skipped")
    assert "cannot be installed" in tried["1.1"]
    assert "the change lies in tinyparity 1.1, 1.2 or 1.3; 2 versions of them cannot be tried" in out
    assert "before: 1.0 pass" in out


# ---- what is kept ----


def test_what_ran_is_kept_and_a_torn_result_is_run_again(bisect, ran, tmp_path):
    asked, answers = ran
    answers |= {"1.0": row(), "1.1": row(), "1.2": "no wheel", "1.3": row("mismatch", "numerics"), "1.4": row("mismatch", "numerics")}
    first = bisect("--good", "1.0", "--bad", "1.4", "--json")
    assert first[0] == 0
    assert asked == ["1.0", "1.4", "1.2", "1.1", "1.3"]
    kept = sorted((tmp_path / "cache").rglob("*.jsonl"))
    assert [path.stem for path in kept] == ["1.0", "1.1", "1.3", "1.4"]
    kept[1].write_bytes(kept[1].read_bytes()[:-5])
    asked.clear()
    second = bisect("--good", "1.0", "--bad", "1.4", "--json")
    assert asked == ["1.2", "1.1"]
    one, other = json.loads(first[1]), json.loads(second[1])
    assert (one["first"], one["last"], one["between"], one["older"]) == ("1.3", "1.1", ["1.2"], "good")
    assert [step["version"] for step in other["steps"] if step["kept"]] == ["1.0", "1.4", "1.3"]
    assert {name: other[name] for name in ("first", "last", "between", "results")} == {name: one[name] for name in ("first", "last", "between", "results")}
    asked.clear()
    bisect("--good", "1.0", "--bad", "1.4", "--fresh")
    assert len(asked) == 5


def test_an_interrupted_bisect_goes_on(bisect, ran, monkeypatch):
    asked, answers = ran
    answers |= {version: row() for version in ("1.0", "1.1", "1.2")} | {version: row("crash", "signal SIGABRT") for version in ("1.3", "1.4")}
    whole, left = trying.Trial._run, iter([1, 1])

    def torn(self, version, installed):
        if not next(left, 0):
            raise KeyboardInterrupt
        return whole(self, version, installed)

    monkeypatch.setattr(trying.Trial, "_run", torn)
    code, _, err = bisect("--good", "1.0", "--bad", "1.4")
    assert (code, err.splitlines()[-1]) == (130, "kernel-parity: interrupted; what ran is kept, the same command goes on from it")
    monkeypatch.setattr(trying.Trial, "_run", whole)
    code, out, _ = bisect("--good", "1.0", "--bad", "1.4")
    assert (code, asked) == (0, ["1.0", "1.4", "1.2", "1.3"])
    assert "tinyparity 1.3 is the first bad version: crash: signal SIGABRT" in out


@pytest.mark.parametrize(("name", "value"), [("device", {"name": "another"}), ("versions", {"torch": "1.0"})])
def test_what_was_kept_of_another_machine_is_run_again(bisect, ran, tmp_path, name, value):
    asked, answers = ran
    wrong = row("mismatch", "numerics")
    answers |= {"1.3": row(), "1.4": wrong}
    assert bisect("--good", "1.3", "--bad", "1.4")[0] == 0
    for path in (tmp_path / "cache").rglob("*.jsonl"):
        path.write_bytes(trying.encode(row(**{name: value}) if name == "device" else Result(**{**vars_of(row()), name: value})) + b"\n")
    asked.clear()
    assert bisect("--good", "1.3", "--bad", "1.4")[0] == 0
    assert asked == ["1.3", "1.4"]


def vars_of(result: Result) -> dict:
    return {name: getattr(result, name) for name in result.__struct_fields__}


def test_a_cure_is_found_by_a_bad_version_that_is_older(bisect, ran):
    answers = ran[1]
    answers |= {version: row("build-failed", "CompilationError", detail="no power of two\nat x") for version in ("1.0", "1.1")}
    answers |= {version: row() for version in ("1.2", "1.3", "1.4")}
    code, out, _ = bisect("--good", "1.4", "--bad", "1.0")
    assert code == 0
    assert out.splitlines()[-3:] == [
        "tinyparity 1.2 is the first good version: pass",
        "before: 1.1 build-failed: CompilationError",
        "detail of 1.1: no power of two",
    ]


# ---- what a user gets wrong ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--good", "1.0", "--bad", "1.9"), "tinyparity 1.9 is not on the index for this Python; nearest: 1."),
        (("--good", "1.0", "--bad", "newest"), "'newest' is no version"),
        (("--good", "1.0", "--bad", "1.0"), "--good and --bad are both 1.0"),
        (("--good", "1.0", "--bad", "1.4", "--package", "no-such-thing"), "cannot run here: tinyparity is not installed"),
        (("--good", "1.0", "--bad", "1.4", "--against", "time"), "--against time needs a GPU"),
        (("--good", "1.0", "--bad", "1.4", "--platform", "cuda"), "cannot run here: serves cpu; this machine is cuda"),
        (("--good", "1.0", "--bad", "1.4", "--find-links", "nowhere"), "--find-links nowhere is no folder"),
        (("--good=1.0",), "Missing option '--bad'"),
    ],
)
def test_what_a_user_gets_wrong_is_one_line_and_exit_code_2(bisect, arguments, said):
    code, out, err = bisect(*arguments)
    assert (code, out) == (2, ""), err
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("merge_stat[tiny-t3-h1-fp32]", "unknown op"),
        ("merge_state[tinny-t3-h1-fp32]", "nearest: tiny"),
        ("merge_state[tiny]", "names no case"),
        ("merge_state[torch_eager-t3-h1-fp32]", "the package index lists no version of torch ("),
    ],
)
def test_an_unknown_cell_is_one_line(bisect, named, said):
    code, out, err = bisect("--good", "1.0", "--bad", "1.4", cell=named)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (row(), row(), "1.0 and 1.4: both give pass, so nothing changed between them"),
        (row("mismatch", "numerics"), row(), "good is bad already: mismatch: numerics, and the bad one passes; exchange --good and --bad"),
        ("no wheel", row(), "tinyparity 1.0 cannot be tried: no wheel; give another version"),
        (row("error", "mistake", detail="in inputs"), row(), "tinyparity 1.0 cannot be tried: error: in inputs"),
    ],
)
def test_ends_between_which_there_is_nothing_to_find(bisect, ran, good, bad, said):
    ran[1].update({"1.0": good, "1.4": bad})
    code, _, err = bisect("--good", "1.0", "--bad", "1.4")
    assert code == 2
    assert said in err.splitlines()[-1]


def test_without_a_network_the_list_that_was_kept_serves(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path))
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null" if name == "PIP_CONFIG_FILE" else "")
    index = Index("tinyparity", url="http://127.0.0.1:9/simple")
    with pytest.raises(UsageError, match="it cannot be reached"):
        index.between("1.0", "1.1")
    index.root.mkdir(parents=True)
    (index.root / "tinyparity-versions.txt").write_text("1.1, 1.0.post1, 1.0, 0.9\n")
    assert index.between("1.1", "1.0") == ["1.0", "1.0.post1", "1.1"]


def test_pre_releases_are_listed_where_an_end_is_one(folder):
    index = Index("tinyparity", folder=str(folder))
    assert index.between("1.3", "1.5rc1") == ["1.3", "1.4", "1.5rc1"]


def test_a_full_disk_is_no_version_that_cannot_be_tried():
    with pytest.raises(UsageError, match="make room"):
        Index("tinyparity")._not_installed("1.0", "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
