"""Exporters that come after the first guarded call: they are found, in whichever way the application imports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.program import LIBRARY, output_of

pytestmark = pytest.mark.outside

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

GUARDED = """
import importlib, importlib.util, pkgutil, sys
from faulttolerance import retry
@retry(max_retries=1)
def charge(): pass
for _ in range(3): charge()
"""
SHOW = {
    "prometheus_client": """
from prometheus_client import generate_latest
shown = [line for line in generate_latest().decode().splitlines() if line.startswith("ft_invocations_total{")]
print([line for line in shown if "lambda" not in line][0].replace("ft_invocations_total", ""))
""",
    "opentelemetry.metrics": """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
data = reader.get_metrics_data()
print([point.value for resource in (data.resource_metrics if data else []) for scope in resource.scope_metrics
       for metric in scope.metrics if metric.name == "ft.invocations.total" for point in metric.data.data_points])
""",
}
SHOWN = {
    "prometheus_client": '{fallback="notDefined",method="__main__.charge",result="valueReturned"} 3.0',
    "opentelemetry.metrics": "[3, 0]",
}

WITH_ANOTHER = {**SHOWN, "opentelemetry.metrics": "[1, 0, 3, 0]"}
"""The same after a call of another guard."""

LAZILY = """
def lazily(name):
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
"""
ASKING = {
    "find_spec": "importlib.util.find_spec(NAME)",
    "find_spec twice": "importlib.util.find_spec(NAME); importlib.util.find_spec(NAME)",
    "find_loader": "import warnings; warnings.simplefilter('ignore'); getattr(pkgutil, 'find_loader', id)(NAME)",
    "a first import that fails": """
class Failing:
    def find_spec(self, name, path, target=None):
        if name.startswith(NAME + "."): raise ImportError("not today")
sys.meta_path.insert(0, Failing())
try: importlib.import_module(NAME)
except ImportError: pass
else: raise AssertionError
del sys.meta_path[0]
""",
    "a lazy import": LAZILY + "lazily(NAME)",
    "a reload": "importlib.reload(importlib.import_module(NAME))",
    "a module that was taken for missing": """
sys.modules[NAME] = None
try: importlib.import_module(NAME)
except ImportError: pass
del sys.modules[NAME]
""",
    "another finder that asks all others": """
class Asking:
    is_asking = False
    def find_spec(self, name, path, target=None):
        if self.is_asking: return None
        self.is_asking = True
        try: return importlib.util.find_spec(name)
        finally: self.is_asking = False
sys.meta_path.insert(0, Asking())
sys.meta_path.append(Asking())
""",
}


@pytest.mark.parametrize("module", SHOW)
@pytest.mark.parametrize("asking", ASKING)
def test_an_exporter_is_found_after_any_question_about_it(module: str, asking: str) -> None:
    """Libraries ask ``find_spec`` for installed packages: that is no import, and changes nothing."""
    program = f"NAME = {module!r}\n" + GUARDED + ASKING[asking] + SHOW[module]

    assert output_of(program, "-W", "error", after=LIBRARY) == SHOWN[module]


@pytest.mark.parametrize("module", SHOW)
def test_an_exporter_is_found_that_waited_to_be_used_before_the_first_call(module: str) -> None:
    """A lazy importer has not imported the module, and we do not; the next first call finds it used."""
    program = (
        f"import importlib.util, sys\nNAME = {module!r}\n{LAZILY}lazily(NAME)\n{GUARDED}"
        "assert type(sys.modules[NAME]).__name__ == '_LazyModule'\n"
        "vars(sys.modules[NAME]), sys.modules[NAME].__doc__\nretry(lambda: 1)()\n"
    )

    assert output_of(program + SHOW[module], "-W", "error", after=LIBRARY) == WITH_ANOTHER[module]


@pytest.mark.parametrize("module", SHOW)
def test_an_exporter_is_found_whose_import_was_under_way_at_the_first_call(module: str, tmp_path: Path) -> None:
    """Another thread may be importing it, or it may itself import the module of the first guarded call.

    The next first call finds it.
    """
    (tmp_path / "billing.py").write_text(GUARDED, encoding="utf-8")
    program = f"""
import importlib, sys
sys.path.insert(0, {str(tmp_path)!r})
NAME = {module!r}
class Between:
    def find_spec(self, name, path, target=None):
        if name.startswith(NAME + "."):
            sys.meta_path.remove(self)
            import billing
sys.meta_path.insert(0, Between())
importlib.import_module(NAME)
assert "billing" in sys.modules
from faulttolerance import retry
retry(lambda: 1)()
"""

    assert output_of(program + SHOW[module], "-W", "error", after=LIBRARY) == WITH_ANOTHER[module].replace(
        "__main__", "billing"
    )


def test_an_exporter_that_came_unseen_is_found_at_the_next_first_call() -> None:
    """A finder may stand in front of all others and ask no other finder."""
    program = (
        GUARDED
        + """
import importlib.machinery
class Alone:
    def find_spec(self, name, path, target=None):
        return importlib.machinery.PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, Alone())
import prometheus_client
retry(lambda: 1)()
"""
    )

    assert output_of(program + SHOW["prometheus_client"], "-W", "error", after=LIBRARY) == SHOWN["prometheus_client"]


def test_a_module_keeps_the_loader_that_it_would_have(tmp_path: Path) -> None:
    """The watch leaves no trace on the imported module, nor on a loader that loads others, too."""
    program = (
        GUARDED
        + """
import zipfile
spec = importlib.util.find_spec("prometheus_client")
assert isinstance(spec.loader, importlib.machinery.SourceFileLoader) and spec.loader.is_package("prometheus_client")
import opentelemetry.metrics, prometheus_client
for module in (opentelemetry.metrics, prometheus_client):
    assert type(module.__loader__) is type(module.__spec__.loader) is importlib.machinery.SourceFileLoader
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("faulttolerance")]
print("as ever")
"""
    )

    assert output_of(program, "-W", "error", after=LIBRARY) == "as ever"


def test_an_exporter_in_an_archive_is_found_once(tmp_path: Path) -> None:
    """The loader of an archive loads all its modules."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("prometheus_client/__init__.py", "from . import other\nREGISTRY = other.Registry()\n")
        archive.writestr(
            "prometheus_client/other.py",
            "class Registry:\n    found = 0\n    def register(self, collector): self.found += 1\n",
        )
    program = (
        GUARDED
        + f"""
import logging
logging.disable()
sys.path.insert(0, {str(tmp_path / "archive.zip")!r})
import prometheus_client
assert "exec_module" not in vars(prometheus_client.__loader__)
print(type(prometheus_client.__loader__).__name__)
"""
    )

    assert output_of(program, "-W", "error", after=LIBRARY) == "zipimporter"
