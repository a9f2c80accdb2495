"""Records: immutable objects that consist of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from inspect import Signature
    from typing import NoReturn, Self


class _SignatureOf:
    """The signature of a kind of record for ``inspect.signature``, created on access."""

    def __get__(self, record: object, kind: type[Record]) -> Signature:
        from inspect import Parameter, Signature

        def parameter(name: str, hint: Any) -> Parameter:
            sort = Parameter.POSITIONAL_OR_KEYWORD if name in kind.__match_args__ else Parameter.KEYWORD_ONLY
            return Parameter(name, sort, default=kind._defaults.get(name, Parameter.empty), annotation=hint)

        return Signature([parameter(name, hint) for name, hint in kind._fields.items()])


@dataclass_transform(frozen_default=True)
class Record:
    """A frozen dataclass to its users and to type checkers, but unknown to the module ``dataclasses``.

    The annotations of a subclass are its fields, and the values beside them their defaults; fields after ``_: KW_ONLY``
    are passed by keyword only. The methods are written here once. ``dataclasses`` would generate them for every class
    again, at each import of the package, and that took as long as the rest of the import.
    """

    _fields: ClassVar[dict[str, Any]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}
    __match_args__: ClassVar[tuple[str, ...]] = ()
    __signature__ = _SignatureOf()

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        cls._fields = {name: hint for name, hint in cls.__annotations__.items() if "ClassVar" not in str(hint)}
        names = [*cls._fields]
        by_position = 0 if kw_only else names.index("_") if "_" in names else len(names)
        cls._fields.pop("_", None)
        cls._defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}
        cls.__match_args__ = tuple(names[:by_position])  # type: ignore[misc]

    def __init__(self, *args: Any, **named: Any) -> None:
        self._keep(self._bound(args, named))

    def _keep(self, values: dict[str, Any]) -> None:
        for name, value in self._kept(values).items():
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        """Return the record of *values*, without the warnings that a caller's own arguments get."""
        record = cls.__new__(cls)
        record._keep(cls._bound((), {**values}))
        return record

    @classmethod
    def _bound(cls, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the argument of each field, or its default."""
        given = {**dict(zip(cls.__match_args__, args, strict=False)), **named}
        values = {**cls._defaults, **given}
        if len(given) != len(args) + len(named) or values.keys() != cls._fields.keys():
            cls._refuse(args, named)
        return values

    @classmethod
    def _kept(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values to store; a subclass may reject *values* here, and omit those that equal its defaults."""
        return values

    @classmethod
    def _refuse(cls, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Raise ``TypeError`` with the mistake in the arguments."""
        try:
            cls.__signature__.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{cls.__qualname__}: {error}") from None

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __replace__(self, /, **changes: Any) -> Self:
        """Return a changed copy, for ``copy.replace``."""
        return self._of({**dict(zip(self._fields, self._values(), strict=True)), **changes})

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to {name!r}: a {type(self).__qualname__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name!r}: a {type(self).__qualname__} does not change")
