"""Where an exception may be raised in code that does not expect one (contract R2a).

Code of the standard library that takes locks is left in peace, for a lock that is left held hangs the process. So is
code that stands at a call which takes or gives back something; but only for a while, since it may stand there for ever.
"""

from __future__ import annotations

import dis
import gc
import os
import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache
from types import CodeType, FrameType

from .._swap import Swap

__all__ = ["IS_EXACT", "OURS", "forget_added_modules", "may_call", "objection", "place", "put_uninterruptible_modules"]

IS_EXACT = sys.version_info < (3, 13)
"""Whether an exception sent to a thread is raised where the thread stands; else at the next place where it can be."""

OURS = "it was in code of this library"
"""An objection that says nothing of the body: the call was about to begin, or to end."""

# As code spells it: a module may have no ``__file__``, and compiled files may have been moved since.
_PACKAGE = (os.path.dirname(os.path.dirname(sys._getframe().f_code.co_filename)) or "nowhere") + os.sep
_DRIVERS = (os.path.join(_PACKAGE, "_guard", "compose.py"), os.path.join(_PACKAGE, "_runtime", "body.py"))
"""Code of ours that expects interruptions wherever one may land in it."""
_CALLING = tuple(os.path.join(_PACKAGE, "_guard", name) for name in ("call_path.py", "compose.py", "shared.py"))
"""Code of ours that calls what is guarded, as ``function(*args, **kwargs)``."""
_MODULES = frozenset(
    {
        "_frozen_importlib",
        "_frozen_importlib_external",
        "_weakrefset",
        "asyncio",
        "concurrent",
        "contextlib",
        "importlib",
        "logging",
        "multiprocessing",
        "queue",
        "threading",
        "weakref",
    }
)
_RITES = frozenset({"__enter__", "__exit__", "acquire", "release"})
_PUTTING_BACK = frozenset({"__exit__", "_acquire_restore", "release"})
"""What may wait itself, but is needed for everything that follows an exception."""
_PATIENCE = 1.0
"""Seconds for which a call that takes or gives back something holds an interruption back."""
_LONG_PATIENCE = 3.0
"""The same where the thread only passes there again and again; it is likely to be met elsewhere as well."""
_FORESIGHT = 200
"""How many instructions are looked at, at most."""

_CONDITION_WAIT = threading.Condition.wait.__code__

_added: frozenset[str] = frozenset()


def put_uninterruptible_modules(names: Iterable[str], swap: Swap) -> None:
    """Leave the code of these modules, and of the modules inside them, in peace as well, once *swap* takes place."""
    swap.attribute(sys.modules[__name__], "_added", _added | frozenset(names))


def forget_added_modules() -> None:
    """Interrupt the code of the added modules again."""
    global _added
    _added = frozenset()


def place(frame: FrameType) -> tuple[int, int]:
    """What tells whether a thread has moved."""
    return id(frame), frame.f_lasti


def objection(
    frame: FrameType | None,
    late_by: float,
    *,
    exact: bool,
    asleep: bool = False,
    blocked: bool = False,
    standing: bool = False,
) -> str | None:
    """Why no exception may be raised in a thread whose innermost frame is *frame*; ``None`` where one may.

    Args:
        frame: The innermost frame.
        late_by: How long the exception has been due, in seconds.
        exact: Whether it is raised in this place, else at the next one where it can be.
        asleep: Whether the thread has stood there for a while.
        blocked: Whether it waits in a call that the exception ends.
        standing: Whether it does not come on by itself, and so may stay there for ever.
    """
    if frame is None:
        return "its thread ran no Python code"
    if frame.f_code.co_filename.startswith(_PACKAGE):
        # Where a function written in C is what is guarded, the frame that calls it is the innermost one.
        if not (blocked and frame.f_lasti in _calls_of_guarded_functions(frame.f_code)):
            return OURS
    elif frame.f_code is _CONDITION_WAIT:
        # It sleeps where a ``finally`` puts everything back in order; that must not be interrupted itself.
        if not ((asleep or blocked) and frame.f_lasti in _sleeps_of_condition_wait()):
            return f"it was in {_name_of(frame)}"
    elif blocked:
        if frame.f_code.co_name in _PUTTING_BACK:
            return f"it was in {_name_of(frame)}"
    else:
        if _is_left_in_peace(frame):
            return f"it was in {_name_of(frame)}"
        if late_by < (_PATIENCE if standing else _LONG_PATIENCE):
            if frame.f_code.co_name in _RITES or _stands_at_rite(frame.f_code, frame.f_lasti):
                return f"it was acquiring or releasing something in {_name_of(frame)}"
            if not exact and _comes_to_rite(frame):
                return f"it was about to acquire or release something in {_name_of(frame)}"
    return _objection_on_the_way(frame)


def _objection_on_the_way(frame: FrameType) -> str | None:
    guarded = False
    step = frame.f_back
    # The collector loses what its callbacks raise, and may have come amidst a call that holds a lock.
    collecting = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    if frame.f_code.co_name == "__del__":
        return "it was in a finalizer"
    if frame.f_code in collecting:
        return "it was in a callback of the garbage collector"
    while step is not None:
        if step.f_code in collecting:
            return "it was in a callback of the garbage collector"
        code = step.f_code
        if code.co_name == "__del__" or step.f_globals.get("__name__") == "weakref":
            return "it was in a finalizer"
        if code.co_filename.startswith(_PACKAGE):
            guarded = True
        elif not guarded and not may_call(code, step.f_lasti):
            return f"it was in something that the interpreter called amidst {_name_of(step)}"
        step = step.f_back
    return None


def is_of_call(frame: FrameType, entry: object) -> bool:
    """Whether the call that began the deadline *entry* stands on the stack of *frame*: greenlets have their own."""
    step: FrameType | None = frame
    while step is not None:
        code = step.f_code
        if (
            code.co_filename.startswith(_PACKAGE)
            and "entry" in code.co_varnames
            and step.f_locals.get("entry") is entry
        ):
            return True
        step = step.f_back
    return False


def _is_left_in_peace(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    if not isinstance(name, str):
        return False
    if name.partition(".")[0] in _MODULES:
        return True
    if _added:
        while name:
            if name in _added:
                return True
            name = name.rpartition(".")[0]
    return False


def _name_of(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


# What the instructions tell

_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "PRECALL"})
_BOUNDARIES = (
    "JUMP",
    "POP_JUMP",
    "POP_TOP",
    "RERAISE",
    "RESUME",
    "RETURN",
    "STORE_",
    "YIELD_VALUE",
    "FOR_ITER",
    "SEND",
)
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_SUPER_ATTR")


class _Instructions:
    """The instructions of one code object."""

    __slots__ = ("offsets", "steps")

    def __init__(self, code: CodeType) -> None:
        self.steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        self.offsets = [step.offset for step in self.steps]

    def at(self, offset: int) -> int | None:
        """The number of the instruction that a frame stands at; *offset* may be that of its last cache entry."""
        return bisect_right(self.offsets, offset) - 1 if offset >= 0 else None

    def target(self, offset: int) -> int:
        """The number of the instruction that a jump to *offset* comes to, behind any prefixes."""
        return bisect_left(self.offsets, offset)

    def is_rite(self, number: int) -> bool:
        """Whether this instruction calls something that acquires or releases, as far as the names of things tell."""
        name = self.steps[number].opname
        if name in ("BEFORE_WITH", "WITH_EXCEPT_START", "LOAD_SPECIAL"):
            return True
        if name not in _CALLS:
            return False
        nones = 0
        for step in reversed(self.steps[max(0, number - 60) : number]):
            if step.opname == "LOAD_CONST" and step.argval is None:
                nones += 1
                if nones == 3:
                    return True  # __exit__(None, None, None), as the end of a `with` block calls it
            elif step.opname not in _CALLS:
                nones = 0
            if step.opname.startswith(_BOUNDARIES):
                return False
            if self.names_rite(step):
                return True
        return False

    @staticmethod
    def names_rite(step: dis.Instruction) -> bool:
        """Whether this instruction loads something that is called like a rite."""
        if step.opname == "LOAD_SPECIAL":
            return True
        if not step.opname.startswith(_LOADS):
            return False
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        return any(name in _RITES for name in names)


_cache: dict[CodeType, _Instructions] = {}


def _instructions(code: CodeType) -> _Instructions:
    found = _cache.get(code)
    if found is None:
        if len(_cache) >= 64:
            _cache.clear()
        found = _cache[code] = _Instructions(code)
    return found


def may_call(code: CodeType, offset: int) -> bool:
    """Whether the instruction at *offset* may be meant to call Python code.

    Where it is not, what runs is a finalizer, a weak reference's callback, or a handler of a signal: an exception would
    be lost there, or come out in a place that does not expect it.
    """
    instructions = code.co_code
    while offset > 0 and instructions[offset] == 0:  # a cache entry
        offset -= 2
    return dis.opname[instructions[offset]].startswith(_CALLERS)


_CALLERS = (
    "BEFORE_",
    "BINARY_",
    "BUILD_MAP",
    "BUILD_SET",
    "CALL",
    "CHECK_E",
    "COMPARE_OP",
    "CONTAINS_OP",
    "CONVERT_VALUE",
    "DELETE_ATTR",
    "DELETE_SUBSCR",
    "DICT_",
    "END_ASYNC_FOR",
    "FORMAT_",
    "FOR_ITER",
    "GET_",
    "IMPORT_",
    "JUMP_IF_",
    "LIST_EXTEND",
    "LOAD_ATTR",
    "LOAD_BUILD_CLASS",
    "LOAD_METHOD",
    "LOAD_SPECIAL",
    "LOAD_SUPER_ATTR",
    "MAP_ADD",
    "MATCH_",
    "POP_JUMP_",
    "PRECALL",
    "PRINT_EXPR",
    "RAISE_VARARGS",
    "SEND",
    "SET_",
    "STORE_ATTR",
    "STORE_SLICE",
    "STORE_SUBSCR",
    "TO_BOOL",
    "UNARY_",
    "UNPACK_",
    "WITH_EXCEPT_START",
    "YIELD_FROM",
)
"""How the names of instructions begin that call what the application wrote."""


def _stands_at_rite(code: CodeType, offset: int) -> bool:
    instructions = _instructions(code)
    number = instructions.at(offset)
    return number is not None and instructions.is_rite(number)


def _comes_to_rite(frame: FrameType) -> bool:
    """Whether the next place where an exception can be raised may be one where none should be."""
    step: FrameType | None = frame
    for _ in range(10):
        if step is None:
            return True
        returns = _runs_on(step)
        if returns is not None:
            return not returns
        # The function may return to its caller before anything is checked.
        step = step.f_back
        if step is None or step.f_code.co_filename.startswith(_DRIVERS):
            return False
        if step.f_code.co_filename.startswith(_PACKAGE) or _is_left_in_peace(step):
            return True
    return True


def _runs_on(frame: FrameType) -> bool | None:
    """Follow the instructions: true where all ways come to a harmless check, false where not, ``None``: one returns."""
    instructions = _instructions(frame.f_code)
    steps = instructions.steps
    first = instructions.at(frame.f_lasti)
    if first is None:
        return False
    returns = False
    pending = _successors(instructions, first)
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        if len(seen) > _FORESIGHT or number >= len(steps):
            return False
        step = steps[number]
        name = step.opname
        if name.startswith(("RAISE", "RERAISE", "WITH_EXCEPT_START")) or instructions.names_rite(step):
            return False
        if name.startswith(("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE")):
            returns = True
        elif name in _CALLS:
            if instructions.is_rite(number):
                return False
        elif name != "JUMP_BACKWARD":
            pending += _successors(instructions, number)
    return None if returns else True


def _successors(instructions: _Instructions, number: int) -> list[int]:
    step = instructions.steps[number]
    found: list[int] = []
    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        found.append(instructions.target(step.argval))
        if step.opname.startswith("JUMP"):
            return found
    return [*found, number + 1]


@cache
def _calls_of_guarded_functions(code: CodeType) -> frozenset[int]:
    """Where code of ours calls what it guards; what is raised there comes out as if that had raised it."""
    found: set[int] = set()
    is_loaded = False
    if code.co_filename.startswith(_CALLING):
        for step in _Instructions(code).steps:
            if step.opname.startswith(("LOAD_DEREF", "LOAD_FAST")):
                names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
                is_loaded = is_loaded or "function" in names
            elif step.opname in _CALLS:
                if is_loaded and step.opname == "CALL_FUNCTION_EX":
                    found.add(step.offset)
                is_loaded = False
    return frozenset(found)


@cache
def _sleeps_of_condition_wait() -> frozenset[int]:
    """The calls in which ``Condition.wait`` sleeps; its lock is released, and the ``finally`` around them takes it."""
    found: set[int] = set()
    released = False
    latest = ""
    for step in _Instructions(_CONDITION_WAIT).steps:
        if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            latest = step.argval
            released = released or latest == "_release_save"
        elif step.opname in _CALLS and released and latest == "acquire":
            found.add(step.offset)
    return frozenset(found)
