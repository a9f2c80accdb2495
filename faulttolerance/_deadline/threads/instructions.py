"""What the instructions of a function tell of a place in it: whether something is taken there, and what comes next.

Names decide: a call of ``acquire`` takes something, whatever it belongs to. Python looks for what interrupts it behind
calls, where a function begins, and where a loop jumps back; a thread that stands elsewhere stands in code written in C,
and is interrupted at the next of these places.
"""

from __future__ import annotations

import builtins
import dis
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import CodeType

TAKES = "takes"
"""Something may be taken there, and would not be given back."""
GIVES = "gives"
"""Something may be given back there, or nobody knows."""
ENDS = "ends"
"""The end of a ``with`` block, behind which nothing is left to be given back."""
USES = "uses"
"""A call whose result is used: what is raised behind it loses that."""
SKIPS = "skips"
"""What is raised there passes by the handlers around it."""
RETURNS = "returns"
"""The function may return, and then it depends on its caller."""

_TAKING = frozenset({"__aenter__", "__enter__", "acquire"})
ACQUIRE_RELEASE = _TAKING | {"__aexit__", "__exit__", "release"}
"""The names of functions that take something or give it back."""

_BLOCKING = frozenset(
    {
        "accept",
        "connect",
        "do_handshake",
        "epoll_wait",
        "poll",
        "recv",
        "recv_into",
        "recvfrom",
        "recvfrom_into",
        "recvmsg",
        "recvmsg_into",
        "select",
        "send",
        "sendall",
        "sendmsg",
        "sendto",
        "sleep",
    }
)
"""Calls that wait for the network or the clock, and take nothing: sockets, selectors, sleeps."""
_FORESIGHT = 200
"""The number of instructions that are looked at, at most."""
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "PRECALL"})
_TAKING_STEPS = ("BEFORE_ASYNC_WITH", "BEFORE_WITH", "LOAD_SPECIAL")
_BOUNDARIES = re.compile("JUMP|POP_JUMP|POP_TOP|RERAISE|RESUME|RETURN|STORE_|YIELD_VALUE|FOR_ITER|SEND")
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_SUPER_ATTR")
_JUMPS_BACK = ("JUMP_BACKWARD", "POP_JUMP_BACKWARD")
_STACKED = {"CALL_FUNCTION_EX": lambda argument: 1 + (argument & 1), "CALL_KW": lambda argument: argument + 1}
"""How many values lie above the function when it is called, by the argument of the instruction; elsewhere that many."""
_UNCHECKED = frozenset({"append", "isinstance", "len", "type"})
"""Calls that the interpreter makes in a way of its own, behind which it does not look."""
_HARMLESS = frozenset(dir(builtins)) - {"__import__", "eval", "exec", "input", "next", "open"}
"""Calls of functions and types whose results nobody has to give back."""


class _Instructions:
    """The instructions of one code object."""

    def __init__(self, code: CodeType) -> None:
        self.steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        self.offsets = [step.offset for step in self.steps]
        # That of a generator or coroutine which covers it all, and replaces a StopIteration, is not missed.
        self.handlers = [
            (entry.start, entry.end, entry.target)
            for entry in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
            if self.steps[bisect_left(self.offsets, entry.target)].opname != "CALL_INTRINSIC_1"
        ]

    def at(self, offset: int) -> int:
        """Return the number of the instruction that a frame stands at; *offset* may be that of its last cache entry."""
        return bisect_right(self.offsets, offset) - 1

    def acquire_release(self, number: int) -> str | None:
        """Tell whether this instruction calls something that takes or gives back, as far as names tell."""
        name = self.steps[number].opname
        if name in _TAKING_STEPS:
            return TAKES
        if name == "WITH_EXCEPT_START":
            return GIVES
        if name not in _CALLS:
            return None
        if self._ends_block(number):
            return ENDS
        kind = None
        for step in reversed(self.steps[max(0, number - 60) : number]):
            if kind is TAKES or _BOUNDARIES.match(step.opname):
                break
            kind = _named_acquire_release(step) or kind
        return kind

    def _ends_block(self, number: int) -> bool:
        """Tell whether this is ``__exit__(None, None, None)``, as the end of a ``with`` block calls it."""
        before = [step for step in self.steps[max(0, number - 4) : number] if step.opname != "PRECALL"][-3:]
        return (
            len(before) == 3
            and all(step.opname == "LOAD_CONST" and step.argval is None for step in before)
            and (self.steps[number].arg == 2 or sys.version_info >= (3, 14))
        )

    def uses_result(self, number: int) -> bool:
        """Return whether this instruction is a call whose result is used, and may have to be given back."""
        if self.steps[number].opname not in _CALLS or self.steps[number + 1].opname == "POP_TOP":
            return False
        name, is_global = self.path_of_callee(number)
        return not (is_global and name in _HARMLESS)

    def blocks(self, number: int) -> bool:
        """Return whether this instruction calls something that blocks, as far as its name tells."""
        name = self._callee(number) if self.steps[number].opname in _CALLS else None
        return name in _BLOCKING

    def is_checked(self, number: int) -> bool:
        """Tell whether Python looks for what interrupts it at this instruction, once that is done."""
        step = self.steps[number]
        if step.opname in _CALLS:
            return step.opname != "CALL" or self._callee(number) not in _UNCHECKED
        return step.opname == "RESUME" or self._jump_back(number) is not None

    def _jump_back(self, number: int) -> dis.Instruction | None:
        """Return the jump back that this instruction does, or that 3.11 makes one with this comparison."""
        if self.steps[number].opname == "COMPARE_OP" and sys.version_info < (3, 12):
            number += 1
        step = self.steps[number]
        return step if step.opname.startswith(_JUMPS_BACK) and "NO_INTERRUPT" not in step.opname else None

    def _callee(self, number: int) -> object:
        """Return the name of what this instruction calls; ``None`` where that has no name."""
        place = self._load_of_callee(number)
        return None if place is None else self.steps[place].argval

    def _load_of_callee(self, number: int) -> int | None:
        """Return the number of the instruction that loads by name what this one calls."""
        call = self.steps[number]
        arguments = _STACKED.get(call.opname, lambda argument: argument)(call.arg or 0)
        depth = 0
        last, first = number, max(0, number - 60)
        if last > first and self.steps[last - 1].opname == "PRECALL":
            last -= 1  # 3.11: it belongs to this call
        for place in range(last - 1, first - 1, -1):
            step = self.steps[place]
            if depth == arguments and step.opname not in ("KW_NAMES", "PUSH_NULL"):
                return place if step.opname.startswith(_LOADS) else None
            if _BOUNDARIES.match(step.opname):
                return None
            if depth != arguments:
                depth += dis.stack_effect(step.opcode, step.arg, jump=False)
        return None

    def path_of_callee(self, number: int) -> tuple[str, bool]:
        """Return what this instruction calls as the code spells it, and whether that begins with a global name."""
        place = self._load_of_callee(number) if self.steps[number].opname in _CALLS else None
        names: list[str] = []
        is_global = False
        while place is not None and place >= 0 and self.steps[place].opname.startswith(_LOADS):
            step = self.steps[place]
            if not isinstance(step.argval, str):
                break
            names.insert(0, step.argval)
            is_global = step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            place = place - 1 if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
        return ".".join(names), is_global

    def jumps_out(self, number: int) -> bool:
        """Tell whether an exception that is raised where this instruction jumps back passes by a handler around it.

        Up to 3.12 it seems to come from before the place that is jumped to, later from the jump itself; neither need
        be covered as the loop is (CPython issue 130279).
        """
        step = self._jump_back(number)
        if step is None:
            return False
        seems_at = step.offset if sys.version_info >= (3, 13) else step.argval - 2
        return self._handler(seems_at) != self._handler(step.argval)

    def _handler(self, offset: int) -> int | None:
        return next((target for start, end, target in self.handlers if start <= offset < end), None)

    @cached_property
    def handling(self) -> frozenset[int]:
        """The numbers of the instructions of ``except`` and ``finally`` blocks, and the like, that follow a failure."""
        pending = [number for number, step in enumerate(self.steps) if step.opname == "PUSH_EXC_INFO"]
        found: set[int] = set()
        while pending:
            number = pending.pop()
            if number not in found and number < len(self.steps):
                found.add(number)
                if not self.steps[number].opname.startswith(("POP_EXCEPT", "RAISE", "RERAISE", "RETURN")):
                    pending += self.successors(number)
        return frozenset(found)

    def successors(self, number: int) -> list[int]:
        """Return the numbers of the instructions that may come next."""
        step = self.steps[number]
        if step.opcode not in dis.hasjrel and step.opcode not in dis.hasjabs:
            return [number + 1]
        target = bisect_left(self.offsets, step.argval)  # behind any prefixes
        return [target] if step.opname.startswith("JUMP") else [target, number + 1]

    def outcome(self, number: int) -> str | None:
        """Return what it means to come to this instruction; empty where Python looks and nothing is the matter."""
        step = self.steps[number]
        name = step.opname
        if name.startswith(("RAISE", "RERAISE", "WITH_EXCEPT_START")):
            return GIVES
        if name.startswith(("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE")):
            return RETURNS
        if self.jumps_out(number):
            return SKIPS
        kind = _named_acquire_release(step) or (self.acquire_release(number) if name in _CALLS else None)
        if kind is not None:
            return GIVES if kind is ENDS else kind
        # Conservative: a function that goes on after a ``yield``, and a conditional jump, need not be checked.
        is_sure = name == "JUMP_BACKWARD" or (name in _CALLS and name != "PRECALL")
        if not (is_sure and self.is_checked(number)):
            return None
        return USES if self.uses_result(number) and not self.blocks(number) else ""


def _named_acquire_release(step: dis.Instruction) -> str | None:
    """Tell whether this instruction loads something that is called like what takes or gives back."""
    if step.opname == "LOAD_SPECIAL":
        return TAKES
    if not step.opname.startswith(_LOADS):
        return None
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    if any(name in _TAKING for name in names):
        return TAKES
    return GIVES if any(name in ACQUIRE_RELEASE for name in names) else None


@lru_cache(64)
def _instructions(code: CodeType) -> _Instructions:
    return _Instructions(code)


def calls_of(code: CodeType) -> Iterator[tuple[int, str, set[object]]]:
    """Give each call of *code*: its offset, its instruction, and what was loaded by name since the call before."""
    loaded: set[object] = set()
    for step in _instructions(code).steps:
        if step.opname.startswith(_LOADS):
            loaded.update(step.argval if isinstance(step.argval, tuple) else (step.argval,))
        elif step.opname in _CALLS and step.opname != "PRECALL":
            yield step.offset, step.opname, loaded
            loaded = set()


@lru_cache(1024)
def acquire_release_at(code: CodeType, offset: int) -> str | None:
    """Return ``TAKES``, ``GIVES`` or ``ENDS`` where the instruction at *offset* calls something that does, by name."""
    if offset < 0 or not _opname(code, offset).startswith((*_CALLS, *_TAKING_STEPS, "WITH_EXCEPT_START")):
        return None
    instructions = _instructions(code)
    return instructions.acquire_release(instructions.at(offset))


@lru_cache(64)
def callee_at(code: CodeType, offset: int) -> tuple[str, bool]:
    """Return the function that is called at *offset*, as the code spells it, and whether by a global name.

    Empty where nothing is called there, or what has no name.
    """
    if offset < 0:
        return "", False
    instructions = _instructions(code)
    return instructions.path_of_callee(instructions.at(offset))


@lru_cache(256)
def is_checked(code: CodeType, offset: int) -> bool:
    """Tell whether an exception that was sent is raised at *offset*, once the instruction there is done."""
    instructions = _instructions(code)
    return offset >= 0 and instructions.is_checked(instructions.at(offset))


@lru_cache(256)
def uses_result_at(code: CodeType, offset: int) -> bool:
    """Return whether the call at *offset*, if it is one, returns something that is used and does not only block."""
    instructions = _instructions(code)
    number = instructions.at(offset)
    return offset >= 0 and instructions.uses_result(number) and not instructions.blocks(number)


@lru_cache(256)
def blocks_at(code: CodeType, offset: int) -> bool:
    """Return whether the instruction at *offset* calls something that blocks, as far as its name tells."""
    instructions = _instructions(code)
    return offset >= 0 and instructions.blocks(instructions.at(offset))


@lru_cache(256)
def jumps_out(code: CodeType, offset: int) -> bool:
    """Tell whether an exception that is raised at *offset* passes by a handler that is meant to see it."""
    instructions = _instructions(code)
    return offset >= 0 and instructions.jumps_out(instructions.at(offset))


@lru_cache(256)
def handles_failure(code: CodeType, offset: int) -> bool:
    """Tell whether the instruction at *offset* belongs to what handles an exception, or cleans up after one."""
    instructions = _instructions(code)
    return offset >= 0 and instructions.at(offset) in instructions.handling


@lru_cache(256)
def ahead(code: CodeType, offset: int) -> frozenset[str]:
    """Return what may come before the next place where an exception can be raised; nothing: all ways are harmless."""
    if offset < 0:
        return frozenset({GIVES})
    instructions = _instructions(code)
    outcomes: set[str] = set()
    pending = instructions.successors(instructions.at(offset))
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        if len(seen) > _FORESIGHT or number >= len(instructions.steps):
            return frozenset({*outcomes, GIVES})
        outcome = instructions.outcome(number)
        if outcome is None:
            pending += instructions.successors(number)
        elif outcome:
            outcomes.add(outcome)
    return frozenset(outcomes)


def goes_round(code: CodeType, offset: int, loop: int) -> bool:
    """Tell whether control may get from *offset* to *loop*, where an iterator is asked for its next item: the same one.

    A loop that is left asks its iterator for nothing more; where it is entered again, it makes a new one.
    """
    instructions = _instructions(code)
    target = instructions.at(loop)
    pending = instructions.successors(instructions.at(offset))
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        if number == target:
            return True
        if number in seen or number >= len(instructions.steps):
            continue
        seen.add(number)
        name = instructions.steps[number].opname
        is_new = name in ("GET_ITER", "GET_AITER") and number < target <= number + 2
        if not (is_new or name.startswith(("RETURN_", "RERAISE", "RAISE"))):
            pending += instructions.successors(number)
    return False


def may_call(code: CodeType, offset: int) -> bool:
    """Tell whether the instruction at *offset* may be meant to call Python code.

    Where it is not, what runs is a finalizer, a weak reference's callback, or a handler of a signal: an exception would
    be lost there, or come out in a place that does not expect it.
    """
    return _CALLERS.match(_opname(code, offset)) is not None


def _opname(code: CodeType, offset: int) -> str:
    instructions = code.co_code
    while offset > 0 and instructions[offset] == 0:  # a cache entry
        offset -= 2
    return dis.opname[instructions[offset]]


_CALLERS = re.compile(
    "BEFORE_|BINARY_|BUILD_MAP|BUILD_SET|CALL|CHECK_E|COMPARE_OP|CONTAINS_OP|CONVERT_VALUE|DELETE_ATTR|"
    "DELETE_SUBSCR|DICT_|END_ASYNC_FOR|FORMAT_|FOR_ITER|GET_|IMPORT_|JUMP_IF_|LIST_EXTEND|LOAD_ATTR|"
    "LOAD_BUILD_CLASS|LOAD_METHOD|LOAD_SPECIAL|LOAD_SUPER_ATTR|MAP_ADD|MATCH_|POP_JUMP_|PRECALL|PRINT_EXPR|"
    "RAISE_VARARGS|SEND|SET_|STORE_ATTR|STORE_SLICE|STORE_SUBSCR|TO_BOOL|UNARY_|UNPACK_|WITH_EXCEPT_START|"
    "YIELD_FROM"
)
"""How the names of instructions begin that call what the application wrote."""
