"""``python -m faulttolerance``: its output for an operator and a build."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from faulttolerance import reload
from faulttolerance._command.cli import app
from kit.garbage import collect_garbage
from kit.program import ALONE, command_line, python

MODULE = """
from concurrent.futures import Future
from datetime import timedelta
from faulttolerance import Guard, asynchronous, bulkhead, circuit_breaker, retry, timeout

@timeout(500)
class Client:
    @retry(max_retries=4, retry_on=OSError, delay=timedelta(seconds=2))
    def charge(self, amount: int) -> int:
        return amount

    @circuit_breaker(fail_on=OSError)
    def refund(self) -> None: ...

@bulkhead(5)
def pay() -> None: ...

payments = Guard(retry(max_retries=2, retry_on=OSError), name="cli payments")

@payments
def settle() -> None: ...
"""

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run the command line in a folder with a package `shop` in it."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "billing.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda *arguments: CliRunner().invoke(app, arguments)
    guard = getattr(sys.modules.get("shop.billing"), "payments", None)
    if guard is not None:
        guard.close()
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
    collect_garbage()


def about_the_shop(done: Any) -> list[str]:
    """Return the messages, without doubts about guards of other tests in this process."""
    return [line for line in done.stderr.splitlines() if not line.endswith("]")]


# check


def test_check_finds_nothing_wrong(run: Run) -> None:
    """The exit status is 0."""
    done = run("check", "shop.billing")

    assert (done.exit_code, about_the_shop(done)) == (0, [])
    assert done.stdout.startswith("nothing wrong; guards: ")


def test_check_reports_every_wrong_value(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """All faults are reported at once, each with its source; the exit status is 1."""
    monkeypatch.setenv("SHOP_BILLING_CLIENT_CHARGE_RETRY_MAXRETRIES", "-2")
    monkeypatch.setenv("SHOP_BILLING_PAY_BULKHEAD_VALUE", "0")
    monkeypatch.setenv("CLI_PAYMENTS_RETRY_DELAY", "soon")

    done = run("check", "shop.billing")

    assert done.exit_code == 1
    assert {line.partition(" ")[0] for line in done.stderr.splitlines()} == {
        "shop.billing.Client/charge/Retry/maxRetries",
        "shop.billing/pay/Bulkhead/value",
        "cli",
    }
    assert "is '-2'; allowed: -1 (no limit) or an integer >= 0 (environment variable SHOP_" in done.stderr


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 1)])
def test_unused_keys_fail_a_strict_check_only(
    run: Run, options: tuple[str, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are listed in any case."""
    monkeypatch.setenv("SHOP_BILLING_CLIENT_CHARGE_RETRY_MAXRETRIS", "2")

    done = run("check", "shop.billing", *options)

    assert done.exit_code == status
    assert done.stdout.startswith("refused by --strict; guards: " if status else "nothing wrong; guards: ")
    assert "did you mean SHOP_BILLING_CLIENT_CHARGE_RETRY_MAXRETRIES?" in done.stderr


def test_check_reports_the_fault_of_a_definition(run: Run, tmp_path: Path) -> None:
    """Decorators refuse at import; the message is the same, without a traceback."""
    (tmp_path / "shop" / "wrong.py").write_text(
        "from faulttolerance import retry\n\nclass Client:\n    @retry(max_retries=-3)\n    def charge(self): ...\n"
    )

    done = run("check", "shop.wrong")

    assert done.exit_code == 1
    assert "shop.wrong.Client.charge @Retry(max_retries) is -3; allowed: " in done.stderr


def test_check_reports_a_class_whose_fallback_is_missing(run: Run, tmp_path: Path) -> None:
    """Python 3.11 wraps an exception at the creation of a class; here it is unwrapped."""
    (tmp_path / "shop" / "wrong.py").write_text(
        "from faulttolerance import fallback\n\nclass Client:\n"
        "    @fallback(fallback_method='gone')\n    def charge(self): ...\n"
    )

    done = run("check", "shop.wrong")

    assert done.exit_code == 1
    assert done.stderr.startswith("shop.wrong.Client.charge @Fallback")


@pytest.mark.parametrize("name", ["shop.nowhere", "shop.broken"])
def test_a_module_that_cannot_be_imported_fails_the_check(run: Run, name: str, tmp_path: Path) -> None:
    """The output has its exception."""
    (tmp_path / "shop" / "broken.py").write_text("1 / 0")

    done = run("check", name)

    assert done.exit_code == 1
    assert done.stderr.startswith(f"{name} cannot be imported (")


@pytest.mark.parametrize("path", ["./shop", "shop/client.py", "shop.client:Client"])
def test_a_path_in_place_of_a_module_is_told_how_modules_are_named(run: Run, path: str) -> None:
    """Other checkers take paths, and the words of ``importlib`` are about relative imports."""
    assert "); name a module, as in acme.billing" in run("check", path).stderr


def test_recursive_imports_the_modules_of_a_package(run: Run) -> None:
    """``__main__`` is left out, since it would run the package."""
    run("check", "shop")
    before = "shop.billing" in sys.modules

    run("check", "shop", "--recursive")

    assert (before, "shop.billing" in sys.modules) == (False, True)


def test_recursive_names_a_folder_that_is_no_package(run: Run, tmp_path: Path) -> None:
    """Python imports its modules, and nothing has checked them."""
    (tmp_path / "shop" / "api").mkdir()
    (tmp_path / "shop" / "api" / "orders.py").write_text("1 / 0")
    (tmp_path / "shop" / "pages").mkdir()

    done = run("check", "shop", "--recursive")

    assert about_the_shop(done) == [f"shop.api is left out: {tmp_path / 'shop' / 'api'} is no regular package"]


def test_a_wrong_switch_fails_the_check(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch is wrong even where no guard has such a key."""
    monkeypatch.setenv("MP_FAULT_TOLERANCE_METRICS_ENABLED", "maybe")

    done = run("check", "shop")

    assert done.exit_code == 1
    assert "MP_Fault_Tolerance_Metrics_Enabled is 'maybe'; allowed: true or false" in done.stderr


@pytest.mark.outside
@pytest.mark.parametrize("how", ["sys.exit(0)", "sys.exit('over')", "raise BaseException", "raise GeneratorExit"])
def test_a_module_that_ends_the_program_fails_the_check(how: str, tmp_path: Path) -> None:
    """A script in a package would else end the check with status 0, before it checked anything."""
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").write_text("")
    (tmp_path / "acme" / "script.py").write_text(f"import sys\n{how}\n")

    done = program("check", "--recursive", "acme", folder=tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith("acme.script cannot be imported (")


@pytest.mark.outside
def test_a_module_that_a_value_names_and_that_ends_the_program_fails_the_check(tmp_path: Path) -> None:
    """The output has the key that names the module."""
    (tmp_path / "acme.py").write_text("from faulttolerance import retry\n@retry\ndef call(): ...\n")
    (tmp_path / "script.py").write_text("raise SystemExit(0)")

    done = program("check", "acme", folder=tmp_path, FAULTTOLERANCE_RETRY_RETRYON="script.Busy")

    assert done.returncode == 1
    assert done.stderr.startswith(
        "Retry/retryOn names script.Busy, which cannot be imported (SystemExit: 0); allowed: qualified names"
    )


@pytest.mark.outside
def test_checking_nothing_is_no_success(tmp_path: Path) -> None:
    """A package whose modules are not imported has no guards."""
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").write_text("")

    done = program("check", "acme", folder=tmp_path)

    assert done.returncode == 1
    assert done.stderr == "nothing is guarded in acme; --recursive imports the modules of packages, too\n"


def test_a_wrong_module_keeps_no_other_from_being_checked(run: Run, tmp_path: Path) -> None:
    """The output has each faulty module by its own name, and the configuration is checked all the same."""
    (tmp_path / "shop" / "broken.py").write_text("1 / 0")
    (tmp_path / "shop" / "wrong.py").write_text("from faulttolerance import retry\nretry(max_retries=-3)(print)\n")
    (tmp_path / "shop" / "around.py").write_text("from shop.about import one\n")
    (tmp_path / "shop" / "about.py").write_text("from shop.around import other\n")
    (tmp_path / "shop" / "__main__.py").write_text("raise SystemExit('it was run')")

    done = run("check", "--recursive", "shop.nowhere", "shop")

    assert done.exit_code == 1
    assert "nothing wrong" not in done.stdout
    assert [line.split("(")[0] for line in about_the_shop(done)] == [
        "shop.nowhere cannot be imported ",
        "shop.about cannot be imported ",
        "shop.around cannot be imported ",
        "shop.broken cannot be imported ",
        "builtins.print @Retry",
    ]
    assert "shop.billing" in sys.modules


DOUBTFUL = """
from faulttolerance import bulkhead, circuit_breaker, rate_limit, timeout, BulkheadException

@circuit_breaker(fail_on=ConnectionError)
@timeout
@rate_limit
@bulkhead
def doubtful(): ...

@circuit_breaker(fail_on=(OSError, BulkheadException))
@timeout
@bulkhead
def settled(): ...

@circuit_breaker(fail_on=OSError, skip_on=BulkheadException)
@timeout
@bulkhead
def meant(): ...

@circuit_breaker(fail_on=ConnectionError)
@timeout(0)
def without(): ...
"""


@pytest.mark.outside
@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 1)])
def test_check_doubts_a_circuit_that_takes_refusals_for_successes(
    options: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    """It follows the specification, and is seldom meant; ``skip_on`` declares it."""
    (tmp_path / "acme.py").write_text(DOUBTFUL)

    done = program("check", "acme", *options, folder=tmp_path)

    assert done.returncode == status
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        f"acme.doubtful @CircuitBreaker(fail_on) does not name {name}"
        for name in ("BulkheadException", "RateLimitException", "TimeoutException")
    ]
    result = "refused by --strict" if status else "nothing wrong"
    assert done.stdout == f"{result}; guards: 4, unused keys: 0, doubts: 3\n"


# explain


def test_explain_shows_the_guard_of_a_function(run: Run) -> None:
    """The guard decorates it as a value."""
    result = run("explain", "shop.billing:settle")

    assert result.exit_code == 0
    assert "shop.billing.settle, by the guard cli payments" in result.output
    assert "maxRetries = 2" in result.output


def test_explain_shows_each_value_and_its_source(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in the order in which the policies nest."""
    monkeypatch.setenv("SHOP_BILLING_CLIENT_CHARGE_RETRY_MAXRETRIES", "7")

    done = run("explain", "shop.billing:Client.charge")

    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "shop.billing.Client.charge"
    assert any(line.startswith("maxRetries = 7 ") and "SHOP_BILLING_CLIENT_CHARGE" in line for line in lines)
    assert [line.partition(" ")[0] for line in lines if "declared on" in line] == ["Retry", "Timeout"]


@pytest.mark.parametrize("name", ["pay", "payments"])
def test_functions_and_guards_are_explained(run: Run, name: str) -> None:
    """The command explains them as it explains methods."""
    assert run("explain", f"shop.billing:{name}").exit_code == 0


def test_all_methods_of_a_class_are_explained(run: Run) -> None:
    """The methods come one after the other."""
    done = run("explain", "shop.billing:Client")

    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        "shop.billing.Client.charge",
        "shop.billing.Client.refund",
    ]


def test_an_attribute_that_cannot_be_read_is_left_out(run: Run, tmp_path: Path) -> None:
    """A class is explained without it."""
    (tmp_path / "shop" / "lazy.py").write_text(
        "from faulttolerance import retry\n\nclass Unset:\n    def __get__(self, instance, owner):\n"
        "        raise LookupError('no settings')\n\nclass Client:\n    settings = Unset()\n"
        "    @retry\n    def charge(self): ...\n"
    )

    of_class = run("explain", "shop.lazy.Client")

    assert (of_class.exit_code, of_class.stdout.splitlines()[0]) == (0, "shop.lazy.Client.charge")


def test_every_name_that_list_shows_is_explained(run: Run) -> None:
    """It is the name in metrics, logs and keys; a further argument names the module of a guard whose name has none."""
    listed = {guard["name"] for guard in json.loads(run("list", "shop.billing", "--json").stdout)}
    names = {name for name in listed if name.startswith("shop.billing.")} | {"cli payments"}

    for name in names:
        done = run("explain", name, "shop.billing")
        assert (done.exit_code, done.stdout.splitlines()[0]) == (0, name)
        told = json.loads(run("explain", name, "shop.billing", "--json").stdout)
        assert [guard["name"] for guard in told] == [name]
    assert "shop.billing.Client.charge" in names


@pytest.mark.parametrize("name", ["Client", "Client.charge", "pay", "settle"])
def test_the_module_of_a_dotted_name_is_imported(run: Run, name: str) -> None:
    """A dot is as good as a colon."""
    by_dot = run("explain", f"shop.billing.{name}")

    assert (by_dot.exit_code, by_dot.stdout) == (0, run("explain", f"shop.billing:{name}").stdout)


def test_a_guard_may_be_named_as_a_module(run: Run, tmp_path: Path) -> None:
    """It is explained where the modules that make it are named."""
    (tmp_path / "shop" / "named.py").write_text(
        "from faulttolerance import Guard, timeout\nkept = Guard(timeout('7s'), name='json')\n"
    )

    done = run("explain", "json", "shop.named")

    assert done.exit_code == 0
    assert "value = 7s" in done.stdout


def test_a_guard_that_no_attribute_holds_is_explained_by_its_name(run: Run, tmp_path: Path) -> None:
    """Methods of a class in a function are explained so, too."""
    (tmp_path / "shop" / "made.py").write_text(
        "from faulttolerance import retry\n\ndef make():\n    class Client:\n"
        "        @retry(max_retries=7)\n        def charge(self): ...\n    return Client\n\nkept = [make()]\n"
    )

    done = run("explain", "shop.made.make.<locals>.Client.charge")

    assert done.exit_code == 0
    assert "maxRetries = 7" in done.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shop.billing", "no guard has the name 'shop.billing'; did you mean 'shop.billing."),
        ("nobody", "no guard has the name 'nobody'; name the modules to import after it"),
        ("cli paymens", "no guard has the name 'cli paymens'"),
        ("shop.billing.Client.chrge", "did you mean 'shop.billing.Client.charge'?"),
        ("shop.billing:Client.chrge", "did you mean 'shop.billing.Client.charge'?"),
        ("shop.billing:Future", "no guard has the name 'shop.billing:Future'"),
        ("shop.billing:Client.__init__", "no guard has the name 'shop.billing:Client.__init__'"),
    ],
)
def test_explain_tells_the_reason_where_it_finds_no_guard(run: Run, target: str, message: str) -> None:
    """The exit status is 2, as of other wrong arguments."""
    done = run("explain", target)

    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_explain_names_the_missing_guard_of_a_function(run: Run, tmp_path: Path) -> None:
    """The function is there, but the guard that it names is not."""
    code = "from faulttolerance import apply_guard\n@apply_guard('cli nobody')\ndef order() -> None: ..."
    (tmp_path / "shop" / "orders.py").write_text(code)

    done = run("explain", "shop.orders.order")

    assert done.exit_code == 2
    assert "no guard is named 'cli nobody'" in " ".join(done.stderr.split())


# list


def rows(done: Any) -> list[list[str]]:
    return [line.split() for line in done.stdout.splitlines()]


def test_list_explains_every_guard(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each guard is shown as by explain, with all its values."""
    monkeypatch.setenv("SHOP_BILLING_PAY_BULKHEAD_ENABLED", "false")

    done = run("list", "shop.billing")

    for name in ("shop.billing.Client.charge", "shop.billing.Client.refund", "shop.billing.pay", "cli payments"):
        assert run("explain", "--all", name, "shop.billing").stdout in done.stdout
    assert "maxRetries = 4  [decorator]" in done.stdout
    assert "abortOn = none  [default]" in done.stdout
    assert "Bulkhead (declared on the method, switched off by " in done.stdout


def test_list_writes_json(run: Run) -> None:
    """Programs read it: numbers are numbers, sets are lists."""
    listed = {one["name"]: one for one in json.loads(run("list", "shop.billing", "--json").stdout)}

    policies = {one["annotation"]: one for one in listed["shop.billing.Client.charge"]["policies"]}
    assert policies["Retry"]["enabled"] is True
    assert policies["Retry"]["parameters"]["maxRetries"] == {
        "value": 4,
        "source": "decorator",
        "default": 3,
        "variable": "SHOP_BILLING_CLIENT_CHARGE_RETRY_MAXRETRIES",
    }
    assert policies["Retry"]["parameters"]["retryOn"]["value"] == ["OSError"]
    assert policies["Timeout"]["parameters"]["interrupt"]["source"] == "default"


@pytest.mark.outside
def test_output_of_modules_is_kept_out_of_the_result(tmp_path: Path) -> None:
    """Modules may print, also while values are read."""
    (tmp_path / "acme.py").write_text("print('one')\nfrom faulttolerance import retry\n@retry\ndef call(): ...\n")
    (tmp_path / "errors.py").write_text("print('two')\nclass Busy(Exception): ...\n")

    done = module("list", "--json", "acme", folder=tmp_path, FAULTTOLERANCE_RETRY_RETRYON="errors.Busy")

    assert json.loads(done.stdout)[0]["name"] == "acme.call"
    assert done.stderr.split() == ["one", "two"]


def test_list_reports_faults_beside_the_values(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is complete all the same; the exit status is 1."""
    monkeypatch.setenv("SHOP_BILLING_PAY_BULKHEAD_VALUE", "0")

    done = run("list", "shop.billing")

    assert done.exit_code == 1
    assert "value = 5  [decorator]" in done.stdout
    assert "shop.billing/pay/Bulkhead/value is '0'" in done.stderr


# keys


def test_keys_lists_every_key_with_its_variable_and_values(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has the effective value beside the declared one."""
    monkeypatch.setenv("FAULTTOLERANCE_BULKHEAD_VALUE", "9")

    found = {row[0]: row[1:] for row in rows(run("keys", "shop.billing"))}

    assert found["shop.billing/pay/Bulkhead/value"][:3] == ["SHOP_BILLING_PAY_BULKHEAD_VALUE", "9", "5"]
    assert found["Bulkhead/value"][0] == "FAULTTOLERANCE_BULKHEAD_VALUE"
    assert found["shop.billing.Client/charge/Timeout/enabled"][1:3] == ["true", "true"]
    assert "shop.billing.Client/charge/Timeout/value" not in found
    assert found["MP_Fault_Tolerance_Metrics_Enabled"][1:3] == ["true", "true"]


@pytest.mark.parametrize(("form", "suffix"), [("properties", ".properties"), ("toml", ".toml")])
def test_a_template_can_be_filled_in(
    run: Run, form: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key is commented out; without the comment signs it is a configuration that changes nothing."""
    before = json.loads(run("list", "shop.billing", "--json").stdout)
    template = run("keys", "shop.billing", "--format", form).stdout
    lines = [line.removeprefix("#") for line in template.splitlines() if "shop.billing" in line and line[1] != " "]
    file = tmp_path / f"filled{suffix}"

    file.write_text("\n".join(lines))
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", str(file))
    reload()
    after = json.loads(run("list", "shop.billing", "--json").stdout)

    assert all(line.startswith("#") or not line for line in template.splitlines())
    assert "filled" in json.dumps(after)
    assert values(after) == values(before)


def values(listed: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        f"{guard['name']} {policy['annotation']} {name}": one["value"]
        for guard in listed
        for policy in guard["policies"]
        for name, one in policy["parameters"].items()
        if guard["name"].startswith("shop.")
    }


# The program


def program(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in *folder*."""
    return command_line(*arguments, folder=folder, environment={**ALONE, **variables})


def module(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the module in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-m", "faulttolerance", *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env={**ALONE, **variables}, timeout=50,
    )  # fmt: skip


@pytest.mark.outside
def test_no_text_of_the_output_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    """Keys, values and names of files may come from anybody; a row stays a row."""
    (tmp_path / "acme.py").write_text("from faulttolerance import retry\n@retry\ndef call(): ...\n")
    (tmp_path / "f.json").write_text(json.dumps({"Retry/\x1b[2Jdelay\n": 1, "[bold]Retry/delay[/bold]": 2}))

    done = program("check", "acme", folder=tmp_path, FAULTTOLERANCE_CONFIG="f.json")
    wrong = program("check", "acme", folder=tmp_path, FAULTTOLERANCE_RETRY_RETRYON="a\nb\x1b[31m")

    assert "Retry/\\x1b[2Jdelay\\n is not used" in done.stderr
    assert wrong.stderr.startswith("Retry/retryOn names a\\nb\\x1b[31m, which cannot be imported")
    assert all(line.isprintable() for line in (done.stderr + wrong.stderr).splitlines())


@pytest.mark.outside
def test_it_runs_as_a_module(run: Run, tmp_path: Path) -> None:
    """It finds modules in the current folder."""
    done = module("check", "shop.billing", folder=tmp_path)

    assert (done.stdout, done.stderr) == ("nothing wrong; guards: 4, unused keys: 0, doubts: 0\n", "")


@pytest.mark.outside
def test_it_names_the_package_to_install(tmp_path: Path) -> None:
    """The command line is an extra."""
    program = "import sys, runpy; sys.modules['typer'] = None; runpy.run_module('faulttolerance', run_name='__main__')"
    done = python(program, environment=ALONE)

    assert done.returncode == 1
    assert done.stderr.strip() == 'the command line needs typer: pip install "faulttolerance[cli]"'
