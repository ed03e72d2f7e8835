"""What a manifest accepts of SEV-SNP guests, held against what a holder's policy lets it accept. Knows no evidence and no decision."""

from __future__ import annotations

from collections.abc import Iterator

from data_holder.rule_finding import RuleFinding
from shared.claims.snp_rules import PRODUCTS, Product, SnpRules, TcbMinimum

_ANY = TcbMinimum()


def snp_findings(allowed: SnpRules, asked: SnpRules) -> Iterator[RuleFinding]:
    """Nothing about an SEV-SNP guest may be laxer than this holder allows. Each verifier's own trust folder counts besides."""
    yield _products(allowed, asked)
    yield _within("signing_keys", asked.signing_keys, allowed.signing_keys)
    for name in ("csp_ids", "machines"):
        listed, named = getattr(allowed, name), getattr(asked, name)
        if listed:
            found = _within(name, named, listed)
            yield RuleFinding(found.rule, found.ok and bool(named), found.expected, found.got)
    yield from (_levels(product, allowed, asked) for product in PRODUCTS if product in allowed.minimum_tcb)
    for name in ("allow_smt", "allow_migration_agent", "allow_cxl"):
        may, does = getattr(allowed, name), getattr(asked, name)
        yield RuleFinding(f"evidence.snp.{name}", may or not does, "either" if may else "no", "yes" if does else "no")


def _within(name: str, inner: tuple[str, ...], outer: tuple[str, ...]) -> RuleFinding:
    ok = set(inner) <= set(outer)
    return RuleFinding(f"evidence.snp.{name}", ok, f"within [{', '.join(outer)}]", f"[{', '.join(inner)}]")


def _products(allowed: SnpRules, asked: SnpRules) -> RuleFinding:
    """Those that count on either side: where levels are named, a product without any is none of them, in a policy as in a manifest."""
    found = _within("products", asked.counted(), allowed.counted())
    levels = ", as minimum_tcb has levels for these alone" if allowed.counted() != allowed.products else ""
    return RuleFinding(found.rule, found.ok, found.expected + levels, found.got)


def _levels(product: Product, allowed: SnpRules, asked: SnpRules) -> RuleFinding:
    """A product that the manifest lets nobody use needs no levels."""
    least, got = allowed.minimum_tcb[product], asked.minimum_tcb.get(product, _ANY)
    enough = all(getattr(got, name) >= getattr(least, name) for name in TcbMinimum.model_fields)
    used = product in asked.counted()
    shown = _shown(got) if used else f"no {product}"
    return RuleFinding(f"evidence.snp.minimum_tcb.{product}", enough or not used, f"at least {_shown(least)}", shown)


def _shown(levels: TcbMinimum) -> str:
    return ", ".join(f"{name} {level}" for name, level in levels.model_dump().items() if level) or "any"
