"""Builds the compiled kernels, and says version and repository; everything else stands in pyproject.toml.

They are optional: where there is no compiler the install goes on, and histogram_counter.py,
channel_counter.py and block_scales.py compute in numpy.
"""

import os
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools_scm import ScmVersion
from setuptools_scm.version import guess_next_version

LIMITED_API = not sysconfig.get_config_var("Py_GIL_DISABLED")
"""One build for every Python from 3.11 on; a free-threaded one, without limited API, needs its own."""

OPTIONS = {
    "unix": ["-O3", "-g0", "-ffp-contract=off"],
    "mingw32": ["-O3", "-g0", "-ffp-contract=off"],
    "msvc": ["/O2", "/fp:precise"],
}
"""For each family of compilers: no fused multiply-add but where the sources ask for one, for the bytes of
numpy; no debugging information, which would be two thirds of the file."""


class BuildKernels(build_ext):
    """Compiles with the options of the compiler that is there."""

    def build_extension(self, ext: Extension) -> None:  # noqa: D102
        ext.extra_compile_args = OPTIONS.get(self.compiler.compiler_type, [])
        super().build_extension(ext)


def kernel(room: str, name: str) -> Extension:
    """Return the extension module of ROOM/NAME.c."""
    return Extension(
        f"qprof_onnx.{room.replace('/', '.')}.{name}",
        sources=[f"{room}/{name}.c"],
        depends=["profiles/observers/_platform.h"],
        define_macros=[("Py_LIMITED_API", "0x030b0000")] if LIMITED_API else [],
        py_limited_api=LIMITED_API,
        optional=True,
    )


def project_urls() -> dict[str, str]:
    """Return the pages of the repository whose release workflow builds this; elsewhere none is known."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if not (server and name):
        return {}
    home = f"{server}/{name}"
    return {"Homepage": home, "Issues": f"{home}/issues", "Changelog": f"{home}/blob/main/CHANGELOG.md"}


def version_scheme(version: ScmVersion) -> str:
    """Return the tag that was checked out, or else the next version's .dev0.

    It is the same between two tags: profiles and plans name it, and the same input gives the same bytes. An
    archive that git made before the first tag has the tag 0.0, as a clone of the same commit has.
    """
    if version.exact and str(version.tag) != "0.0":
        return version.format_with("{tag}")
    return version.format_next_version(guess_next_version, "{guessed}.dev0")


setup(
    use_scm_version={"version_scheme": version_scheme},
    project_urls=project_urls(),
    ext_modules=[
        kernel("profiles/observers", "_counter"),
        kernel("profiles/observers", "_channels"),
        kernel("quantizer/numerics", "_blocks"),
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED_API else {},
)
