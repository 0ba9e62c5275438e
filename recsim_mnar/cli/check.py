"""``recsim-mnar check``: what you wrote against its contract, in sentences."""

from __future__ import annotations

import click

BROKEN = 3
"""Exit status where a rule is broken."""


@click.command(short_help="Hold a class of your own against its contract.")
@click.argument("name")
def check(name: str) -> None:
    """Hold NAME (package.module:Class, or an estimator's function) against the contract of its kind.

    A policy or learner, a world, a protocol or an estimator; or, by its Gymnasium id (package.module:Name-v0), an
    environment with its vector entry point. Prints a line for each rule that is broken: what was found, and what to
    do. Exits with 3 where there is one.
    """
    from recsim_mnar.contracts.named import check_named

    checked = check_named(name)
    for finding in checked.findings:
        click.echo(f"{finding.rule}: {finding.why}")
        if finding.fix:
            click.echo(f"    {finding.fix}")
    for remark in checked.remarks:
        click.echo(remark)
    article = "an" if checked.kind[0] in "aeiou" else "a"
    if checked.findings:
        n = len(checked.findings)
        click.echo(f"{name} is {article} {checked.kind} that breaks {n} of {checked.n_rules} rules")
        raise SystemExit(BROKEN)
    click.echo(f"{name} keeps the {checked.n_rules} rules of {article} {checked.kind}")
