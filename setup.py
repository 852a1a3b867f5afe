"""Builds the CPU kernels as an optional part: without a C++ compiler, Tenuto is installed without them.

They are a plain shared library, not a Python module; only the file's place and name are those of one.
"""

from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
SOURCES = sorted(str(path.relative_to(HERE)) for path in (HERE / "native").glob("*.cpp"))
HEADERS = sorted(str(path.relative_to(HERE)) for path in (HERE / "native").glob("*.h"))

setup(
    ext_modules=[
        Extension(
            "tenuto._native",
            sources=SOURCES,
            depends=HEADERS,
            language="c++",
            extra_compile_args=[
                *("-std=c++17", "-O3", "-pthread", "-fvisibility=hidden"),
                *("-fno-math-errno", "-fno-trapping-math"),  # rounding is then one vector instruction
                "-ffp-contract=off",  # a row's bits must not depend on what the compiler joins; see fma16
                *("-Wno-psabi", "-Wno-maybe-uninitialized"),
            ],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
