"""The umbrella `queueyard`: every system under one name, each imported only when it is called."""

from __future__ import annotations

import click

from queueyard.console import Script, examples, version_option

#: script -> how `queueyard` calls it
SCRIPTS = {"queen": "queen", "runforge-cli": "runforge", "panqueue": "panqueue", "jjq": "jjq", "jolli-ops": "ops"}

_LATER = {
    "queen": ("queueyard.queen.cli:main", "Messages, assignments and file reservations between agents."),
    "runforge": ("queueyard.runforge.cli:main", "An execution queue for experiment runs, fair by group."),
    "panqueue": ("queueyard.panqueue.cli:main", "Background jobs on Redis or Valkey."),
    "jjq": ("queueyard.jjq.cli:main", "A merge queue for the jj version control system."),
    "ops": ("queueyard.ops.cli:main", "Resumable pushes of file operations."),
    "pipeline": ("queueyard.pipeline.cli:main", "The history of every system as tables, on Spark."),
    "status": ("queueyard.yard.cli_status:status", "How every place of the yard is doing, in one table."),
    "events": ("queueyard.yard.cli_events:events", "What happens in all places of the yard, in the order of time."),
    "trace": ("queueyard.yard.cli_trace:trace", "One piece of work across all systems."),
    "list": ("queueyard.yard.cli_places:list_places", "List the places of the yard."),
    "add": ("queueyard.yard.cli_places:add", "Add a place to the yard."),
    "remove": ("queueyard.yard.cli_places:remove", "Take a place off the list of the yard."),
    "dashboard": ("queueyard.dashboard.cli:main", "The yard as a web page, live and with its history."),
    "bridge": ("queueyard.yard.cli_bridges:bridge", "Commands that systems start, so that they work together."),
    "units": ("queueyard.yard.cli_units:units", "Unit files for systemd, and a container file."),
    "doctor": ("queueyard.yard.cli:doctor", "Say which real parts this machine has."),
    "demo": ("queueyard.yard.cli:demo", "Show every system at work in a throw-away yard."),
}


@click.group(
    cls=Script,
    later=_LATER,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("queueyard doctor", "queueyard demo", "queueyard queen msg inbox", "queueyard completion bash"),
)
@version_option("queueyard")
def main() -> None:
    """Work queues for people and agents.

    Each system also has a script of its own: queen, runforge-cli, panqueue, jjq, jolli-ops.
    """


@main.command(epilog=examples('eval "$(queueyard completion bash)"', "queueyard completion zsh >> ~/.zshrc"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--script", type=click.Choice(["queueyard", *SCRIPTS]), help="Only this script; default: all of them.")
def completion(shell: str, script: str | None) -> None:
    """Print the shell code that completes the commands of every script."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415  only this command needs it

    kind = get_completion_class(shell)
    for name in [script] if script else ["queueyard", *SCRIPTS]:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        if kind is not None:
            click.echo(kind(main, {}, name, variable).source())


if __name__ == "__main__":
    main(prog_name="queueyard")
