"""Editors that read the source and run nothing show the defaults and signatures that hold."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from faulttolerance import policies
from faulttolerance._policy import Policy, parameters

KINDS = [kind for kind in Policy.__subclasses__() if parameters(kind)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_field_shows_the_default_that_holds(kind: type[Policy]) -> None:
    """An editor shows `max_retries: int = 3`, and no call that makes a description of the parameter."""
    tree = ast.parse(Path(inspect.getfile(kind)).read_text(encoding="utf-8"))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    annotated = [node for node in body if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node)]
    fields = {node.target.id: node.value for node in annotated if node.target.id != "_"}

    assert [*fields] == [*parameters(kind)]
    for name, parameter in parameters(kind).items():
        assert (fields[name] is not None) == parameter.has_default
        if isinstance(fields[name], (ast.Constant, ast.Tuple)):
            assert ast.literal_eval(fields[name]) == parameter.default
        else:
            assert not isinstance(fields[name], ast.Call)


def test_no_decorator_is_made_by_a_function_with_several_shapes() -> None:
    """An editor that does not choose among overloads would show those of other decorators."""
    tree = ast.parse(inspect.getsource(policies))
    made_by = {
        function.func.id
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for function in node.decorator_list
        if isinstance(function, ast.Call)
    }
    shapes = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in made_by]

    assert len(made_by) == 5
    assert sorted(shapes) == sorted(made_by)
