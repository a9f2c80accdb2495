"""Facts about a place in a function, from its instructions: whether it acquires something, and what may follow.

Names decide: a call of ``acquire`` takes something, whatever object it belongs to. Python checks for interruptions
after calls, at the start of a function, and at the jump back of a loop. A thread at any other place is in code written
in C, and is interrupted at the next of these places.
"""

from __future__ import annotations

import builtins
import dis
import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache, cached_property, lru_cache
from itertools import filterfalse, islice
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")

ACQUIRES = "takes"
"""The place may acquire something that would not be released."""
RELEASES = "gives"
"""The place may release something, or nothing is known about it."""
USES = "uses"
"""A call whose result is used: an exception after it loses the result."""
SKIPS = "skips"
"""An exception that is raised at the place skips the handlers around it."""
RETURNS = "returns"
"""The function may return, and then the result depends on its caller."""

ACQUIRE_RELEASE: dict[str, str] = dict.fromkeys(("__aenter__", "__enter__", "acquire"), ACQUIRES)
ACQUIRE_RELEASE |= dict.fromkeys(("__aexit__", "__exit__", "release"), RELEASES)
"""The names of functions that acquire or release something, and which of both they do."""

_BLOCKING = {"accept", "connect", "control", "do_handshake", "epoll_wait", "poll", "recv", "select", "send", "sleep"}
_BLOCKING |= {"recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "sendall", "sendmsg", "sendto"}
"""Calls that wait for the network or the clock, and acquire nothing: sockets, selectors (of macOS, too), sleeps."""
_BLOCKING_IN_TLS = ("self._sslobj.read", "self._sslobj.write")
"""As ``_BLOCKING``, for what the code of ``ssl.SSLSocket`` calls, as it spells it; no others of that name wait."""
_MAX_INSTRUCTIONS_AHEAD = 200
"""The largest number of instructions that are examined."""
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "PRECALL"})
_ACQUIRING_STEPS = ("BEFORE_ASYNC_WITH", "BEFORE_WITH", "LOAD_SPECIAL")
_LOADS = (
    "LOAD_ATTR", "LOAD_DEREF", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_NAME", "LOAD_SUPER_ATTR",
    "STORE_FAST_LOAD",
)  # fmt: skip
_JUMPS_BACK = ("JUMP_BACKWARD", "POP_JUMP_BACKWARD")
_STACKED: dict[str, Callable[[Any], int]] = {
    "CALL_FUNCTION_EX": lambda argument: 2 if argument is None else 1 + (argument & 1),
    "CALL_KW": lambda argument: argument + 1,
}
"""The number of values above the function on the stack at a call, from the argument; by default the argument itself."""
_UNCHECKED = frozenset({"append", "isinstance", "len", "type"})
"""Calls that the interpreter specializes, without a check after them."""
_HARMLESS = frozenset(dir(builtins)) - {"__import__", "eval", "exec", "input", "next", "open"}
"""Calls of functions and types whose results need no release."""
_HARMLESS_NAMES = {name for kind in (str, bytes, float, dict, list, set, math) for name in dir(kind)} | {
    "Decimal", "date", "datetime", "digest", "done", "dumps", "empty", "findall", "finditer", "fromisoformat",
    "fullmatch", "group", "groups", "hexdigest", "is_set", "isoformat", "loads", "locked", "lstat", "match",
    "monotonic", "monotonic_ns", "now", "pack", "perf_counter", "perf_counter_ns", "process_time", "qsize", "random",
    "search", "stat", "strftime", "sub", "time", "time_ns", "timedelta", "timestamp", "total_seconds", "unpack",
}  # fmt: skip
_HARMLESS_NAMES -= {"get", "pop", "popitem"}
"""As ``_HARMLESS``, for the last name of a callee, whatever object it belongs to."""


class _Instructions:
    """The instructions of one code object."""

    def __init__(self, code: CodeType) -> None:
        self.steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        self.offsets = [step.offset for step in self.steps]
        self.is_of_tls_socket = code.co_qualname.startswith("SSLSocket.")
        # The handler that covers a whole generator or coroutine and replaces a StopIteration may be skipped.
        self.handlers = [
            (entry.start, entry.end, entry.target)
            for entry in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
            if self.steps[bisect_left(self.offsets, entry.target)].opname != "CALL_INTRINSIC_1"
        ]

    def at(self, offset: int) -> int:
        """Return the index of the instruction of a frame; *offset* may be that of its last cache entry."""
        return bisect_right(self.offsets, offset) - 1

    def acquire_release(self, number: int) -> str | None:
        """Return the kind of this instruction if it acquires or releases something, judged by names; else ``None``."""
        name = self.steps[number].opname
        if name in _ACQUIRING_STEPS or (name == "CALL" and self.steps[number - 1].opname == "LOAD_SPECIAL"):
            return ACQUIRES
        callee = self._callee(number)
        if name == "WITH_EXCEPT_START" or (not callee and self._ends_block(number)):
            return RELEASES
        return ACQUIRE_RELEASE.get(callee)

    def _ends_block(self, number: int) -> bool:
        """Return whether this call has three times ``None``, as that at the end of a ``with`` block, without a name."""
        before = [step for step in self.steps[max(0, number - 4) : number] if step.opname != "PRECALL"][-3:]
        is_call = self.steps[number].opname in _CALLS and len(before) == 3
        return is_call and all("CONST" in step.opname and step.argval is None for step in before)

    def uses_result(self, number: int) -> bool:
        """Return whether this is a call that does more than block, whose result is used and may need a release."""
        if self.steps[number].opname not in _CALLS or self.steps[number + 1].opname == "POP_TOP" or self.blocks(number):
            return False
        name, is_global = self.path_of_callee(number)
        return not (is_global and name in _HARMLESS) and name.rpartition(".")[2] not in _HARMLESS_NAMES

    def blocks(self, number: int) -> bool:
        """Return whether this instruction calls a function that blocks, judged by its name; ``poll(0)`` only looks."""
        path, callee = self.path_of_callee(number)[0], self._callee(number)
        last = self.steps[number - 1 - (self.steps[number - 1].opname == "PRECALL")]
        only_looks = callee in ("poll", "select") and last.opname.startswith("LOAD_") and last.argval == 0
        return not only_looks and (callee in _BLOCKING or (self.is_of_tls_socket and path in _BLOCKING_IN_TLS))

    def is_checked(self, number: int) -> bool:
        """Return whether Python checks for interruptions at this instruction, after its execution."""
        step = self.steps[number]
        if step.opname in _CALLS:
            return step.opname != "CALL" or self._callee(number) not in _UNCHECKED
        return step.opname == "RESUME" or self._jump_back(number) is not None

    def _jump_back(self, number: int) -> dis.Instruction | None:
        """Return the backward jump of this instruction, or the jump that 3.11 fuses with this comparison."""
        if self.steps[number].opname == "COMPARE_OP" and sys.version_info < (3, 12):
            number += 1
        step = self.steps[number]
        return step if step.opname.startswith(_JUMPS_BACK) and "NO_INTERRUPT" not in step.opname else None

    def _callee(self, number: int) -> str:
        """Return the name of the callee of this instruction; empty if it is no call, or the callee has no name."""
        return self.path_of_callee(number)[0].rpartition(".")[2]

    def _load_of_callee(self, number: int) -> int | None:
        """Return the index of the instruction that loads the callee of this instruction by name."""
        call = self.steps[number]
        arguments = _STACKED[call.opname](call.arg) if call.opname in _STACKED else call.arg
        depth = 0
        last = number - 1
        if self.steps[last].opname == "PRECALL":
            last -= 1  # 3.11: it belongs to this call
        for place in range(last, -1, -1):
            step = self.steps[place]
            if depth == arguments and step.opname not in ("KW_NAMES", "PUSH_NULL"):
                return place if step.opname.startswith(_LOADS) else None
            if _jumps(step):
                return None
            if depth != arguments:
                depth += dis.stack_effect(step.opcode, step.arg, jump=False)
        return None

    def path_of_callee(self, number: int) -> tuple[str, bool]:
        """Return the callee of this instruction as the code spells it, and whether that starts with a global name."""
        place = self._load_of_callee(number) if self.steps[number].opname in _CALLS else None
        names: list[str] = []
        is_global = False
        while place is not None and place >= 0 and self.steps[place].opname.startswith(_LOADS):
            step = self.steps[place]
            names.insert(0, _last_name(step))
            is_global = step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            place = place - 1 if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
        return ".".join(names), is_global

    def jumps_out(self, number: int) -> bool:
        """Return whether an exception at the backward jump of this instruction skips a handler around it.

        Up to 3.12 the exception seems to come from before the target of the jump, later from the jump itself. The
        handlers of the loop need not cover either place (CPython issue 130279).
        """
        step = self._jump_back(number)
        if step is None:
            return False
        seems_at = step.offset if sys.version_info >= (3, 13) else step.argval - 2
        return self._handler(seems_at) != self._handler(step.argval)

    def _handler(self, offset: int) -> int | None:
        return next((target for start, end, target in self.handlers if start <= offset < end), None)

    def caught(self, number: int) -> frozenset[str]:
        """Return the names that the ``except`` blocks around this instruction load, up to one of ``BaseException``."""
        names: set[str] = set()
        for target in filterfalse(self._is_finally, self._handlers(number)):
            handler = (self.steps[place] for place in self.reached([self.at(target)], self._ends_handling))
            loaded = {_last_name(step) for step in handler if step.opname.startswith(_LOADS)}
            if "BaseException" in loaded:
                break
            names |= loaded
        return frozenset(names)

    def finally_of(self, number: int) -> set[int]:
        """Return the offsets of the ``finally`` blocks that follow the blocks around this instruction."""
        return set(filter(self._is_finally, self._handlers(number)))

    def _handlers(self, number: int) -> Iterator[int]:
        target = self._handler(self.steps[number].offset)
        while target is not None:
            yield target
            target = self._handler(target)

    def _is_finally(self, target: int) -> bool:
        first = self.at(target)
        kinds = [step.opname for step in self.steps[first : first + 9]]
        return kinds[0] == "PUSH_EXC_INFO" and kinds[1] != "WITH_EXCEPT_START" and "CHECK_EXC_MATCH" not in kinds

    @cached_property
    def handling(self) -> frozenset[int]:
        """The indexes of the instructions of ``except`` and ``finally`` blocks, and others, that follow a failure."""
        starts = [number for number, step in enumerate(self.steps) if step.opname == "PUSH_EXC_INFO"]
        return frozenset(self.reached(starts, self._ends_handling))

    def _ends_handling(self, number: int) -> bool:
        return self.steps[number].opname.startswith(("POP_EXCEPT", "RAISE", "RERAISE", "RETURN"))

    def successors(self, number: int) -> list[int]:
        """Return the indexes of the possible next instructions."""
        step = self.steps[number]
        if not _jumps(step):
            return [number + 1]
        target = bisect_left(self.offsets, step.argval)  # after any prefixes
        return [target] if step.opname.startswith("JUMP") else [target, number + 1]

    def reached(self, pending: list[int], stops: Callable[[int], bool]) -> Iterator[int]:
        """Yield the indexes of the *pending* instructions, and of all that may follow; a way ends where one *stops*."""
        seen: set[int] = set()
        while pending:
            number = pending.pop()
            if number not in seen:
                seen.add(number)
                yield number
                if number < len(self.steps) and not stops(number):
                    pending += self.successors(number)

    def outcome(self, number: int) -> str | None:
        """Return the effect of this instruction; empty if Python checks at it, and an exception is harmless."""
        if number >= len(self.steps):
            return RELEASES
        step = self.steps[number]
        name = step.opname
        if name.startswith(("RAISE", "RERAISE", "WITH_EXCEPT_START")):
            return RELEASES
        if name.startswith(("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE")):
            return RETURNS
        if self.jumps_out(number):
            return SKIPS
        if name.startswith(_LOADS):
            return ACQUIRE_RELEASE.get(_last_name(step))
        kind = None if name.startswith("BEFORE_") else self.acquire_release(number)
        if kind is not None:
            return kind
        # Conservative: a call by keywords, the resumption after a ``yield`` and a conditional jump need not be checked.
        is_sure = name == "JUMP_BACKWARD" or (name in _CALLS and name not in ("CALL_KW", "PRECALL"))
        if not (is_sure and self.is_checked(number)):
            return None
        return USES if self.uses_result(number) else ""


def _jumps(step: dis.Instruction) -> bool:
    return step.opcode in dis.hasjrel or step.opcode in dis.hasjabs


def _last_name(step: dis.Instruction) -> Any:
    """Return the name that this instruction loads, from 3.13 on possibly together with another one before it."""
    return step.argval[-1] if isinstance(step.argval, tuple) else step.argval


@lru_cache(64)
def _instructions(code: CodeType) -> _Instructions:
    return _Instructions(code)


def _at_offset(fact: Callable[[_Instructions, int], T], before_start: T) -> Callable[[CodeType, int], T]:
    """Return a function for the *fact* about the instruction at an offset of a code; *before_start* at offset -1."""

    @lru_cache(1024)
    def fact_at(code: CodeType, offset: int) -> T:
        instructions = _instructions(code)
        return fact(instructions, instructions.at(offset)) if offset >= 0 else before_start

    return fact_at


acquire_release_at = _at_offset(_Instructions.acquire_release, None)
"""Returns ``ACQUIRES`` or ``RELEASES`` if the instruction at an offset does that, judged by names, else ``None``."""
callee_at = _at_offset(_Instructions.path_of_callee, ("", False))
"""Returns the callee at an offset, as the code spells it, and whether that starts with a global name.

The name is empty if there is no call at the offset, or its callee has no name."""
is_checked = _at_offset(_Instructions.is_checked, before_start=False)
"""Returns whether an exception that was sent is raised at an offset, after the execution of the instruction."""
uses_result_at = _at_offset(_Instructions.uses_result, before_start=False)
"""Returns whether the instruction at an offset is a call with a used result that does more than block."""
blocks_at = _at_offset(_Instructions.blocks, before_start=False)
"""Returns whether the instruction at an offset calls a function that blocks, judged by its name."""
jumps_out = _at_offset(_Instructions.jumps_out, before_start=False)
"""Returns whether an exception that is raised at an offset skips a handler that is meant for it."""
handles_failure = _at_offset(lambda instructions, number: number in instructions.handling, before_start=False)
"""Returns whether the instruction at an offset belongs to the handling of an exception, or the cleanup after it."""
caught_at = _at_offset(_Instructions.caught, frozenset[str]())
"""Returns the names that the ``except`` blocks around an offset load, as those of the exceptions that they catch.

A handler of ``BaseException``, and those outside of it, do not count."""


@lru_cache(256)
def ahead(code: CodeType, offset: int) -> frozenset[str]:
    """Return the effects that may come before the next place of an exception; nothing: all paths are harmless."""
    if offset < 0:
        return frozenset({RELEASES})
    instructions = _instructions(code)
    blocks = instructions.finally_of(instructions.at(offset))

    @cache
    def outcome(number: int) -> str | None:
        effect = instructions.outcome(number)
        # The start of a ``finally`` releases something, whatever it calls.
        return RELEASES if effect in ("", USES) and not blocks <= instructions.finally_of(number) else effect

    ways = instructions.reached(
        instructions.successors(instructions.at(offset)), lambda number: outcome(number) is not None
    )
    numbers = [*islice(ways, _MAX_INSTRUCTIONS_AHEAD + 1)]
    outcomes = {effect for number in numbers if (effect := outcome(number))}
    return frozenset(outcomes if len(numbers) <= _MAX_INSTRUCTIONS_AHEAD else {*outcomes, RELEASES})


def goes_round(code: CodeType, offset: int, loop: int) -> bool:
    """Return whether control may get from *offset* to *loop*, which requests the next item of the same iterator.

    A loop that was left requests no more items from its iterator. A loop that is entered again has a new iterator.
    """
    instructions = _instructions(code)
    target = instructions.at(loop)

    def stops(number: int) -> bool:
        name = instructions.steps[number].opname
        is_new = name in ("GET_ITER", "GET_AITER") and number < target <= number + 2
        return is_new or name.startswith(("RETURN_", "RERAISE", "RAISE"))

    return target in instructions.reached(instructions.successors(instructions.at(offset)), stops)


def may_call(code: CodeType, offset: int) -> bool:
    """Return whether the instruction at *offset* may be meant to call Python code.

    Otherwise the running code is a finalizer, the callback of a weak reference, or the handler of a signal. An
    exception would be lost there, or come out at a place that does not expect it.
    """
    return opname(code, offset).startswith(_CALLERS)


def opname(code: CodeType, offset: int) -> str:
    """Return the name of the instruction at *offset*, which may be that of its last cache entry."""
    instructions = code.co_code
    while offset > 0 and instructions[offset] == 0:  # a cache entry
        offset -= 2
    return dis.opname[instructions[offset]]


_CALLERS = (
    "BEFORE_", "BINARY_", "BUILD_MAP", "BUILD_SET", "CALL", "CHECK_E", "COMPARE_OP", "CONTAINS_OP", "CONVERT_VALUE",
    "DELETE_ATTR", "DELETE_SUBSCR", "DICT_", "END_ASYNC_FOR", "FORMAT_", "FOR_ITER", "GET_", "IMPORT_", "JUMP_IF_",
    "LIST_EXTEND", "LOAD_ATTR", "LOAD_BUILD_CLASS", "LOAD_METHOD", "LOAD_SPECIAL", "LOAD_SUPER_ATTR", "MAP_ADD",
    "MATCH_", "POP_JUMP_", "PRECALL", "PRINT_EXPR", "RAISE_VARARGS", "SEND", "SET_", "STORE_ATTR", "STORE_SLICE",
    "STORE_SUBSCR", "TO_BOOL", "UNARY_", "UNPACK_", "WITH_EXCEPT_START", "YIELD_FROM",
)  # fmt: skip
"""The beginnings of the names of instructions that call code of the application."""
