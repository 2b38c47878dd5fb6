"""The help of the command line, whose examples can be run, and completion in shells."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import click
import pytest
from click.shell_completion import shell_complete

from tiltframe.cli.app import cli

COMMANDS = cli.list_commands(click.Context(cli))


def command(name):
    return cli.get_command(click.Context(cli), name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_two_examples_that_it_takes(name):
    shown = command(name).get_help(click.Context(command(name), info_name=f"tiltframe {name}"))
    examples = re.findall(r"^ +(.*\btiltframe .*)$", shown.partition(" Examples:\n")[2], re.MULTILINE)
    assert len(examples) >= 2, shown
    for example in examples:
        words = shlex.split(example)
        words = words[words.index("tiltframe") + 1 :]
        end_positions = [words.index(sign) for sign in ("|", "<", ">") if sign in words]
        arguments = words[1 : min(end_positions, default=len(words))]
        assert words[0] == name
        command(name).make_context(name, arguments).close()


@pytest.mark.parametrize(
    ("shell", "shown"),
    [("bash", "complete -o nosort"), ("zsh", "compdef _tiltframe_completion"), ("fish", "complete --no-files")],
)
def test_shells_get_a_script_that_completes(shell, shown, capsys, monkeypatch):
    def complete(instruction, *words):
        monkeypatch.setenv("COMP_WORDS", shlex.join(["tiltframe", *words]))
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        assert shell_complete(cli, {}, "tiltframe", "_TILTFRAME_COMPLETE", f"{shell}_{instruction}") == 0
        return capsys.readouterr().out

    assert shown in complete("source", "")
    assert "query" in complete("complete", "qu")
    assert "--within" in complete("complete", "query", "--wi")


@pytest.mark.slow
def test_the_command_answers_the_shell():
    environment = os.environ | {"_TILTFRAME_COMPLETE": "zsh_source"}
    script = "import sys; sys.argv[0] = 'tiltframe'; from tiltframe_command import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert "compdef _tiltframe_completion tiltframe" in done.stdout
