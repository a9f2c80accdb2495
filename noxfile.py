"""The checks that a change has to pass: `nox` runs the default sessions, `nox -l` lists all."""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "typing", "docstrings", "tests-3.11"]

ALONE = Path("tck/installation/alone")
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.15"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, and the direction of imports."""
    session.install("--editable", ".[lint]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", "--no-cache")


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types of the package, the examples and a user's code twice; plant mistakes that have to be found."""
    session.install("--editable", ".[typing]")
    session.run("mypy")
    session.run("pyright")
    session.run("python", "tck/kit/planted.py")


@nox.session(python=PYTHONS)
@nox.parametrize("optional", [True, False], ids=["with-optional", "without-optional"])
def tests(session: nox.Session, optional: bool) -> None:
    """Run all tests, with and without the optional packages."""
    session.install("--editable", ".[test,test-optional,durable]" if optional else ".[test]")
    session.run("pytest", "-n", "auto", "--tier=all", *session.posargs)


@nox.session
def bare(session: nox.Session) -> None:
    """Test what the core promises, where no optional package is installed."""
    session.install("--editable", ".[test]")
    # All outcomes in every way of calling, the specification, the pages, and what is missing when it is asked for.
    files = ["call/test_scenarios.py", "installation/test_optional_packages.py", "metrics/test_several_policies.py"]
    files += ["retry/test_predicates.py", "spec", "docs"]
    session.run("pytest", "-n", "auto", *(f"tck/{name}" for name in files), *session.posargs)


@nox.session
@nox.parametrize("framework", sorted(path.stem.removeprefix("for_") for path in ALONE.glob("for_*.py")))
def alone(session: nox.Session, framework: str) -> None:
    """Try what is for a framework where that is installed and nothing else: a success, and an outage in the log."""
    package = {"opentelemetry": "opentelemetry-api", "prometheus": "prometheus-client", "sqlalchemy": "sqlalchemy>=2.1"}
    session.install("--editable", ".", package.get(framework, framework))
    session.run("python", "-W", "error", str(ALONE / f"for_{framework}.py"))


@nox.session
def tck(session: nox.Session) -> None:
    """Run the official kit against the wheel, in virtual time; renew the page on conformance, fail if it was stale."""
    _install_wheel(session)
    session.run("pytest", "tck/spec", "--installed", "--conformance-report", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Run all tests against the wheel, as a user would install it."""
    _install_wheel(session)
    session.run("pytest", "-n", "auto", "--tier=all", "--installed", *session.posargs)


def _install_wheel(session: nox.Session) -> None:
    session.install(".[test,test-optional]")
    session.install("--force-reinstall", "--no-deps", ".")  # what an earlier run has left may be of older files


@nox.session
def mutation(session: nox.Session) -> None:
    """Change decisions and the order of the policies, one at a time; fail where no test notices."""
    session.install("--editable", ".[test,test-optional]")
    session.run("python", "tck/kit/mutation.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Run the examples in pages, and follow every relative link."""
    session.install("--editable", ".[test,test-optional,demo,durable]")
    session.run("pytest", "tck/docs", *session.posargs)


@nox.session
def docstrings(session: nox.Session) -> None:
    """Run the examples in docstrings."""
    session.install("--editable", ".[test,test-optional,demo]")
    session.run("pytest", "--doctest-modules", "faulttolerance", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Put the storefront under load, guarded and not."""
    session.install("--editable", ".[demo]")
    session.run("python", "examples/storefront", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what a guarded call costs, beside its peers; `-- --quick` to see whether it runs."""
    session.install("--editable", ".[bench]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def simulate(session: nox.Session) -> None:
    """Simulate overloads, and make the tables and pictures of the page on them anew; `-- storm` for one of them."""
    session.install("--editable", ".")
    session.run("python", "-m", "tck.simulation", *session.posargs)


@nox.session
def site(session: nox.Session) -> None:
    """Build the site into build/site, and test its search.

    `-- serve` shows it while you write, `-- deploy 1.0 latest` commits it.
    """
    session.install("--editable", ".[site,test]", "selenium>=4.20")
    task, *rest = session.posargs or ["build"]
    told = {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    if task in ("build", "serve"):
        session.run("mkdocs", task, *rest, env=told)
        if task == "build":
            session.run("pytest", "tck/docs/test_search.py")
    else:
        session.run("mike", task, *rest, env=told)


@nox.session
def release(session: nox.Session) -> None:
    """Build wheel and source distribution into dist, twice; fail where they differ or PyPI would refuse them."""
    session.install(".[release]")
    session.run("python", ".ci/release.py")


@nox.session(python="3.11", venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Test what stands on other packages with the lowest versions of them that pyproject.toml allows."""
    session.install("--resolution", "lowest-direct", "--editable", ".[test,test-optional]")
    files = ["configuration", "declaring/test_patching.py", "deadline/test_clients.py", "fleet/test_redis.py"]
    files += ["guard/test_port.py", "inspection/test_command_line.py", "integrations", "surroundings/test_trio.py"]
    files += ["telemetry", "testing/test_pytest_plugin.py", "web"]
    session.run("pytest", *(f"tck/{name}" for name in files))
