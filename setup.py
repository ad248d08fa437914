"""Builds the compiled counters; everything else stands in pyproject.toml.

They are optional: where there is no compiler the install goes on, and histogram_counter.py and
channel_counter.py count in numpy.
"""

import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LIMITED_API = not sysconfig.get_config_var("Py_GIL_DISABLED")
"""One build for every Python from 3.11 on; each free-threaded Python, which has no limited API, needs its own."""

OPTIONS = {
    "unix": ["-O3", "-g0", "-ffp-contract=off"],
    "mingw32": ["-O3", "-g0", "-ffp-contract=off"],
    "msvc": ["/O2", "/fp:precise"],
}
"""For each family of compilers: no fused multiply-add but where the sources ask for one, for the bytes of
numpy; no debugging information, which would be two thirds of the file."""


class BuildCounters(build_ext):
    """Compiles with the options of the compiler that is there."""

    def build_extension(self, ext: Extension) -> None:  # noqa: D102
        ext.extra_compile_args = OPTIONS.get(self.compiler.compiler_type, [])
        super().build_extension(ext)


def counter(name: str) -> Extension:
    """Return the extension module of profiles/observers/NAME.c."""
    return Extension(
        f"qprof_onnx.profiles.observers.{name}",
        sources=[f"profiles/observers/{name}.c"],
        depends=["profiles/observers/_platform.h"],
        define_macros=[("Py_LIMITED_API", "0x030b0000")] if LIMITED_API else [],
        py_limited_api=LIMITED_API,
        optional=True,
    )


setup(
    ext_modules=[counter("_counter"), counter("_channels")],
    cmdclass={"build_ext": BuildCounters},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED_API else {},
)
