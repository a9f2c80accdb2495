"""The files of the stack of ``examples/observed`` belong together. CI runs the whole as a section of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
OBSERVED = ROOT / "examples" / "observed"
DASHBOARD = ROOT / "docs" / "how-to" / "dashboard.json"
RULES = ROOT / "docs" / "how-to" / "alerts.yml"
SERVICES = yaml.safe_load((OBSERVED / "compose.yml").read_text(encoding="utf-8"))["services"]


def read(path: str) -> Any:
    return yaml.safe_load((OBSERVED / path).read_text(encoding="utf-8"))


def mounts(service: str) -> dict[str, Path]:
    """Return the mounted files by their path inside."""
    found = (mount.split(":") for mount in SERVICES[service]["volumes"])
    return {inside: (OBSERVED / outside).resolve() for outside, inside, how in found if how == "ro"}


def test_every_mounted_file_exists() -> None:
    """Docker would make an empty folder for a missing file; mounts are read-only."""
    for name, service in SERVICES.items():
        assert len(mounts(name)) == len(service["volumes"])
        assert all(path.exists() and path.is_relative_to(ROOT) for path in mounts(name).values())


def test_images_are_of_one_version() -> None:
    assert all(re.fullmatch(r"[\w/]+:v?\d+\.\d+(\.\d+|-slim)", service["image"]) for service in SERVICES.values())


def test_nothing_is_open_to_other_machines() -> None:
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service["ports"])


def test_prometheus_scrapes_the_shop_and_reads_the_rules() -> None:
    settings = yaml.safe_load(mounts("prometheus")["/etc/prometheus/prometheus.yml"].read_text())
    [job] = settings["scrape_configs"]
    [[target]] = [one["targets"] for one in job["static_configs"]]
    host, port = target.split(":")

    assert "examples.observed.shop" in SERVICES[host]["command"][-1]
    assert SERVICES[host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert [mounts("prometheus")[f"/etc/prometheus/{rules}"] for rules in settings["rule_files"]] == [RULES]


def test_the_files_that_the_shop_needs_are_copied() -> None:
    copied = re.findall(r"\b(?:cp -r )((?:[\w./]+ )+)/tmp/project", SERVICES["shop"]["command"][-1])[0].split()

    assert all((ROOT / name).exists() for name in copied)
    assert {"faulttolerance", "examples", "pyproject.toml", "README.md", "LICENSE"} == set(copied)


def test_grafana_finds_the_dashboard_and_its_data_source() -> None:
    """The dashboard offers the sources of its type; there is one, which is the default."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = re.findall(r'"type": "(\w+)",\s*"uid": "([^"]+)"', DASHBOARD.read_text(encoding="utf-8"))
    [choice] = [one for one in dashboard["templating"]["list"] if one["name"] == "datasource"]
    [source] = read("grafana/datasources/prometheus.yml")["datasources"]
    [provider] = read("grafana/dashboards/faulttolerance.yml")["providers"]
    inside = mounts("grafana")

    assert set(asked) == {("prometheus", "${datasource}")}
    assert choice["type"] == "datasource"
    assert (choice["query"], source["isDefault"]) == (source["type"], True)
    assert source["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert inside[f"{provider['options']['path']}/dashboard.json"] == DASHBOARD
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in inside
    assert inside["/etc/grafana/provisioning/datasources"] == OBSERVED / "grafana" / "datasources"
    assert inside["/etc/grafana/provisioning/dashboards"] == OBSERVED / "grafana" / "dashboards"


@pytest.mark.outside
def test_each_alert_fires_waits_and_stays_silent_as_it_says() -> None:
    """Prometheus' own tool simulates hours at once; each alert is in each test that can have it."""
    tests = {test["name"]: test["alert_rule_test"] for test in read("alerts-test.yml")["tests"]}
    rules = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}

    fires, waits, silent = ([one["alertname"] for one in checks] for checks in tests.values())
    assert fires == silent == list(rules)
    assert waits == [name for name, rule in rules.items() if "for" in rule]

    if shutil.which("promtool") is None and not os.environ.get("CI"):
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(
        ["promtool", "test", "rules", str(OBSERVED / "alerts-test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.outside
def test_the_demonstration_describes_itself_and_names_a_missing_program(tmp_path: Path) -> None:
    """The whole demonstration takes twenty seconds."""
    told, refused = (
        subprocess.run(
            [sys.executable, "-W", "error", "-m", "examples.observed", *arguments],
            cwd=ROOT, env={**os.environ, "PATH": str(path)}, capture_output=True, text=True, timeout=60, check=False,
        )
        for path, arguments in ((os.environ["PATH"], ["--help"]), (tmp_path, []))
    )  # fmt: skip

    assert (told.returncode, told.stderr) == (0, "")
    assert "watched by a real Prometheus" in told.stdout
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "apt-get install prometheus" in refused.stderr


def test_minutes_are_shortened_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds stay as they are."""
    monkeypatch.syspath_prepend(ROOT)
    from examples.observed.expectations import MAY, OUGHT
    from examples.observed.questions import alerts, hurried, questions

    rules, shorter = RULES.read_text(encoding="utf-8"), hurried(RULES.read_text(encoding="utf-8"))

    assert re.findall(r"\[\w+\]|for: \w+", shorter) == [
        re.sub(r"(\d+)m", lambda found: f"{int(found[1]) * 400}ms", one)
        for one in re.findall(r"\[\w+\]|for: \w+", rules)
    ]
    assert re.sub(r"\[\w+\]|for: \w+", "", shorter) == re.sub(r"\[\w+\]|for: \w+", "", rules)
    assert OUGHT.keys() | MAY <= alerts()
    assert not any("$" in question.query for question in questions())
    for name in [name for name in sys.modules if name == "examples" or name.startswith("examples.")]:
        del sys.modules[name]
