"""Compile the loops of policies where Cython and a compiler are; pyproject.toml has the rest.

Each loop is one Python file, which runs as it is where nothing was compiled. The compiled module
lies in placement/compiled and carries the digest of its source, which
placement/packing/compiled_loops.py compares.
"""

import runpy
import shutil
from pathlib import Path

from setuptools import Extension, setup

#: Checked indexes cost little. Fused multiplications round otherwise than Python does.
DIRECTIVES = {"language_level": 3, "wraparound": False, "annotation_typing": False}
COMPILER_OPTIONS = ["-O2", "-g0", "-ffp-contract=off"]
#: Python 3.11 is the first whose stable interface has buffers: one wheel is for all from it on.
LIMITED_API = [("Py_LIMITED_API", "0x030B0000")]


def loops() -> list[Extension]:
    """Return an extension for each loop; none without Cython."""
    try:
        from Cython.Build import cythonize  # noqa: PLC0415
    except ImportError:
        return []
    forms = runpy.run_path("placement/packing/compiled_loops.py")
    folder = Path("build/loops/placement/compiled")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    extensions = []
    for name in forms["LOOPS"]:
        source = Path(*name.split(".")).with_suffix(".py")
        copy = folder / source.name
        digest = forms["source_digest"](source)
        copy.write_text(f'{source.read_text()}\n\nSOURCE_DIGEST = "{digest}"\n')
        shutil.copy(source.with_suffix(".pxd"), folder)
        extensions.append(
            Extension(
                f"placement.compiled.{source.stem}",
                [str(copy)],
                define_macros=LIMITED_API,
                extra_compile_args=COMPILER_OPTIONS,
                py_limited_api=True,
            )
        )
    compiled: list[Extension] = cythonize(
        extensions, compiler_directives=DIRECTIVES, include_path=["build/loops"], quiet=True
    )
    for extension in compiled:  # Cython keeps only some options of what it is given
        extension.optional = True
    return compiled


setup(ext_modules=loops(), options={"bdist_wheel": {"py_limited_api": "cp311"}})
