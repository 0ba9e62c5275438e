"""``recsim-mnar check``: what you wrote against its contract, in sentences."""

from __future__ import annotations

import click

from recsim_mnar.cli.output import JsonOutput, json_option

BROKEN = 3
"""Exit status where a rule is broken."""


@click.command(short_help="Hold a class of your own against its contract.")
@click.argument("name")
@json_option("what is found")
def check(name: str, json_output: JsonOutput) -> None:
    """Hold NAME (package.module:Class, or an estimator's function) against the contract of its kind.

    A policy or learner, a world, a protocol or an estimator; or, by its Gymnasium id (package.module:Name-v0), an
    environment with its vector entry point. Prints a line for each rule that is broken: what was found, and what to
    do. Exits with 3 where there is one.
    """
    from recsim_mnar.testing.kinds import check_named

    json_output.check()
    checked = check_named(name)
    for finding in checked.findings:
        json_output.answer(f"{finding.rule}: {finding.why}")
        if finding.fix:
            json_output.answer(f"    {finding.fix}")
    for remark in checked.remarks:
        json_output.say(remark)
    article = "an" if checked.kind[0] in "aeiou" else "a"
    if checked.findings:
        n = len(checked.findings)
        json_output.say(f"{name} is {article} {checked.kind} that breaks {n} of {checked.n_rules} rules")
    else:
        json_output.say(f"{name} keeps the {checked.n_rules} rules of {article} {checked.kind}")
    json_output.write(
        {
            "name": name,
            "kind": checked.kind,
            "rules": checked.n_rules,
            "findings": [{"rule": each.rule, "why": each.why, "fix": each.fix} for each in checked.findings],
            "remarks": list(checked.remarks),
        }
    )
    if checked.findings:
        raise SystemExit(BROKEN)
