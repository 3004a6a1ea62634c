"""Where sources are found, and what is said where they are not."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.offline.sources import cache_folder, find_source


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path / "cache"))


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x = 1\n")
    return path


@pytest.mark.parametrize("where", ["lib", "lib/sglang", "python", "."])
def test_a_path_is_the_package_or_holds_it(tmp_path: Path, where: str) -> None:
    for folder in ("lib", "python", "."):
        (tmp_path / folder / "sglang").mkdir(parents=True)
    found = find_source(str(tmp_path / where))
    assert (found.root / found.package).is_dir()


@pytest.mark.parametrize(("inner", "package"), [("sglang", "sglang/sglang"), ("python/sglang", "sglang/python/sglang")])
def test_a_checkout_may_have_the_package_s_name(tmp_path: Path, inner: str, package: str) -> None:
    (tmp_path / "sglang" / inner).mkdir(parents=True)
    found = find_source(str(tmp_path / "sglang"))
    assert found.root / found.package == tmp_path / package


def test_a_package_that_holds_one_of_its_name_is_itself(tmp_path: Path) -> None:
    (tmp_path / "sglang" / "sglang").mkdir(parents=True)
    (tmp_path / "sglang" / "__init__.py").touch()
    found = find_source(str(tmp_path / "sglang"))
    assert found.root / found.package == tmp_path / "sglang"


def test_a_wheel_is_read_and_not_installed(tmp_path: Path) -> None:
    found = find_source(str(wheel(tmp_path / "sglang-9.8-py3-none-any.whl", "sglang/a.py", "sglang/b.so")))
    assert found.label == "sglang 9.8"
    assert [file.name for file in (found.root / "sglang").iterdir()] == ["a.py"]
    assert found.root.is_relative_to(cache_folder())


@pytest.mark.parametrize("name", ["a.whl", "foo-1.0-py3-none-any.whl"])
def test_a_wheel_of_another_package_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"no package 'sglang' in the wheel .*{name}"):
        find_source(str(wheel(tmp_path / name, "foo/a.py")))


@pytest.mark.parametrize("spec", ["nowhere", "nowhere==", "nowhere>=0.5", "", "=="])
def test_what_is_nowhere_is_one_line_with_a_remedy(spec: str) -> None:
    with pytest.raises(UsageError, match=r"[\w]+==VERSION$"):
        find_source(spec)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(blocked))
    with pytest.raises(UsageError, match="KERNEL_PARITY_CACHE"):
        find_source(str(wheel(tmp_path / "sglang-9.8-py3-none-any.whl", "sglang/a.py")))


def test_output_on_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "harness", "list", "models"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert "make room" in done.stderr
    assert "Traceback" not in done.stderr
