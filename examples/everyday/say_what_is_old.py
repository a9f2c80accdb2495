"""A page of a shop whose parts fail: each has fallbacks in turn, and the page says what is not as it should be."""

from __future__ import annotations

from faulttolerance import ExecutionContext, degradations, fallback


def from_replica(context: ExecutionContext) -> int:
    raise TimeoutError("the replica does not answer either")


class Shop:
    @fallback(from_replica, "price_as_printed", apply_on=OSError)
    def price(self, article: str) -> int:
        raise ConnectionError("no prices")

    def price_as_printed(self, article: str) -> int:
        return 120

    @fallback(lambda context: [], apply_on=OSError)
    def reviews(self, article: str) -> list[str]:
        return [f"{article}: very good"]


with degradations() as found:
    shop = Shop()
    page = {"price": shop.price("tea"), "reviews": shop.reviews("tea")}

for one in found:
    print(f"{one.method} answered by {one.by}, because of {one.failure!r}")
assert page == {"price": 120, "reviews": ["tea: very good"]}
assert [one.by for one in found] == ["price_as_printed"]
