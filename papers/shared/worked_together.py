"""A study whose run folder several processes work on: jobs may follow from each other, and no page needs to be written.

`consilience.reproduction.study.run_study` knows all cells before it begins. Here a job may depend on the result of
another one. A process can also measure alone, on a machine that has none of the packages that pages are made with.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.comparison.plan import to_json
from consilience.comparison.store import Store, versions_used, writing
from consilience.reproduction.study import Reproduction, run_folder
from consilience.version import __version__


@dataclass(frozen=True)
class SharedStudy:
    """How a study is run.

    Args:
        name: Of the study and its run folder.
        script: Its file, which other processes start.
        full: Settings at full size.
        quick: Settings of the quick form.
        extending: Settings that a run folder may be extended by; the others identify it.
        work: Called with settings, store and the time after which nothing more is begun; measures what is not done.
        describe: Called with settings, store and command; returns the page.
        keep: Called with a path and settings; writes there what another machine needs.
    """

    name: str
    script: str
    full: Mapping[str, Any]
    quick: Mapping[str, Any]
    extending: Collection[str]
    work: Callable[..., None]
    describe: Callable[..., Any]
    keep: Callable[..., None]

    def run(self, *, name=None, quick=False, settings=None, out=None, jobs=1, cluster=None, verbose=1, command=""):
        """Measure with so many processes, and write the page. name: of the run folder, if not the study's."""
        settings = {**(self.quick if quick else self.full), **(settings or {})}
        store = self.settle(settings, run_folder(name or self.name, quick, out), command)
        self.work_with(settings, store, jobs)
        self.work(settings, store)  # what a process that died has left
        return self.write_page(settings, store, command)

    def write_page(self, settings, store, command):
        """Write the page of what is measured."""
        from consilience.report.document import write_document

        document = self.describe(settings, store, command)
        with writing(store.folder):
            return Reproduction(store.folder, document, write_document(document, store.folder))

    def settle(self, settings, folder, command=""):
        """The store of a run folder; one with other settings is refused."""
        store, asked = Store(folder), self.asked_of(settings)
        store.settle(asked, lambda: {"asked": asked, "jobs": [], "command": command, "versions": versions_used()})
        return store

    def asked_of(self, settings):
        """The settings that identify a run folder, as plain values."""
        identifying = {name: value for name, value in settings.items() if name not in self.extending}
        return json.loads(to_json({"experiment": self.name, **identifying, "version": __version__}))

    def work_with(self, settings, store, jobs, seconds=float("inf")):
        """Work in this process and in others until all have ended; nothing is begun after so many seconds."""
        until = time.monotonic() + seconds
        command = [sys.executable, self.script, "--settings", json.dumps(settings), "--out", str(store.folder)]
        command += ["--seconds", str(seconds)]
        others = [subprocess.Popen(command) for _ in range(jobs - 1)]  # noqa: S603  # the study's own file
        self.work(settings, store, until)
        for process in others:
            process.wait()

    def main(self, title):
        """Run it from the command line; with --settings only measure, as one of several on a folder."""
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--quick", action="store_true", help="minutes on two cores instead of full size")
        parser.add_argument("--out", metavar="FOLDER", help="run folder; by default one in runs")
        parser.add_argument("--jobs", type=int, default=1, help="number of processes")
        parser.add_argument("--settings", help="measure with these settings (JSON, over the study's); write no page")
        parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many seconds")
        parser.add_argument("--keep", metavar="PATH", help="write what another machine needs, and stop")
        given = parser.parse_args()
        settings = {**(self.quick if given.quick else self.full), **json.loads(given.settings or "{}")}
        if given.keep:
            self.keep(Path(given.keep), settings)
        elif given.settings:
            store = self.settle(settings, run_folder(self.name, given.quick, given.out))
            self.work_with(settings, store, given.jobs, given.seconds)
        else:
            command = shlex.join(["python", *sys.argv])
            done = self.run(quick=given.quick, out=given.out, jobs=given.jobs, command=command)
            print("\n".join(done.document.answer))
            print(f"\nreport: {done.page}")
