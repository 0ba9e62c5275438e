"""``recsim-mnar warm``: compiles the kernels ahead."""

from __future__ import annotations

import click

from recsim_mnar.cli.options import names_of
from recsim_mnar.cli.output import JsonOutput, json_option, progress


@click.command(short_help="Compile the kernels ahead.")
@click.option(
    "--parts",
    default=None,
    help="What to compile, with commas: sessions, ratings, features, purchases, campaigns, estimators, agents "
    "(all but agents by default).",
)
@json_option("what was compiled")
def warm(parts: str | None, json_output: JsonOutput) -> None:
    """Compile the kernels ahead, so that the first run waits for none.

    Says what was compiled, how long it took and where it is kept. What is there already is not compiled again.
    """
    from recsim_mnar.kernels.jit import cache_folders
    from recsim_mnar.warming import USUAL
    from recsim_mnar.warming import warm as compiled

    json_output.check()
    names = list(USUAL) if parts is None else names_of(parts, "--parts")
    total, seconds, done_parts = 0, 0.0, []
    with progress() as report:
        report("compile " + ", ".join(names))
        for done in compiled(names):
            total, seconds = total + done.kernels, seconds + done.seconds
            what = f"{done.kernels} kernels" if done.kernels != 1 else "1 kernel"
            json_output.say(f"{done.part}: {what if done.kernels else 'nothing to compile'}, {done.seconds:.1f} CPU s")
            done_parts.append({"part": done.part, "kernels": done.kernels, "cpu_seconds": round(done.seconds, 3)})
    folders = cache_folders()
    where = f"kept in {', '.join(folders)}" if folders else "no folder can be written, so nothing is kept"
    json_output.say(f"{total} kernels compiled in {seconds:.0f} CPU s; {where}")
    json_output.write({"parts": done_parts, "kernels": total, "folders": [str(folder) for folder in folders]})
