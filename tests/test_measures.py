"""What is counted when the package is measured."""

from __future__ import annotations

from pathlib import Path

from tests.measures import AIMS, code_lines, llvm_lines, measures, wide_kernels

SOURCE = '''"""Of a module."""

X = 1
"""Of an attribute."""


def emitted(builder, value):  # builds
    """Of a function."""
    # why

    return builder.add(
        value,
        value,
    )


def wide(a, b, c, d, e, f, g, h, i, j, k):
    return a
'''


def test_lines_have_code() -> None:
    assert sorted(code_lines(SOURCE)) == [3, 7, 11, 12, 13, 14, 17, 18]
    assert sorted(llvm_lines(SOURCE)) == [7, 11, 12, 13, 14]
    assert wide_kernels(SOURCE) == ["wide"]


def test_kernels_are_looked_for_in_their_folders(tmp_path: Path) -> None:
    paths = [tmp_path / "kernels" / "one.py", tmp_path / "two.py"]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_text(SOURCE + "call(unit=True)\n")
    found = measures(paths)
    assert found.keys() == AIMS.keys()
    assert (
        found["modules"] == found["places that pass unit="] == found["files that pass unit="] == 2
    )
    assert found["lines of LLVM"] == 5
    assert found["kernels with more than ten arguments"] == 1
