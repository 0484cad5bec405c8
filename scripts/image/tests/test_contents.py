"""What is in the image: the two ways to build it agree, and every crate has its notice."""

import dataclasses
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import crates  # noqa: E402
import labels  # noqa: E402
import notices  # noqa: E402
import root  # noqa: E402
import sbom  # noqa: E402
from errors import Refused  # noqa: E402


def crate(folder, **fields):
    plain = crates.Crate("a", "1.0.0", "MIT", "https://example.com/a", ("Ada <ada@example.com>",), folder, "0" * 64)
    return dataclasses.replace(plain, **fields)


class DockerfileTest(unittest.TestCase):
    def setUp(self):
        text = (root.REPOSITORY / "deploy/Dockerfile").read_text()
        self.last = text.rpartition("\nFROM ")[2].replace("\\\n", "")

    def test_dockerfile_has_the_user_and_the_entry_point_of_the_image(self):
        self.assertIn(f"\nUSER {root.USER}\n", self.last)
        self.assertIn(f'\nENTRYPOINT ["{root.ENTRYPOINT[0]}"]\n', self.last)

    def test_dockerfile_has_the_labels_of_the_image(self):
        build = {"version": "v", "commit": "c", "commit_date": "d"}
        wanted = labels.labels(build, "s")
        found = dict(re.findall(r'(org\.opencontainers\.image\.\w+)="([^"]*)"', self.last))
        self.assertEqual(set(found), set(wanted))
        fixed = {name: value for name, value in found.items() if not value.startswith("$")}
        self.assertEqual(fixed, {name: value for name, value in wanted.items() if name in fixed})

    def test_dockerfile_copies_nothing_but_the_root_into_the_image(self):
        copies = re.findall(r"^COPY .*$", self.last, re.M)
        self.assertEqual(copies, ["COPY --from=build /out/root /"])


class NoticesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_licence_below_a_vendored_folder_is_found_and_that_of_tests_is_not(self):
        for path in ("LICENSE-MIT", "vendor/library/COPYING", "tests/data/LICENSE", "src/license.rs"):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(path)
        self.assertEqual(notices.texts(crate(self.folder), "apache"), ["LICENSE-MIT", "vendor/library/COPYING"])

    def test_crate_without_a_file_gets_the_text_of_its_licence_or_is_refused(self):
        self.assertIn("Copyright (c) Ada\n", notices.texts(crate(self.folder), "apache")[0])
        self.assertEqual(notices.texts(crate(self.folder, licence="Apache-2.0"), "apache"), ["apache"])
        with self.assertRaisesRegex(Refused, "a 1.0.0 .BSD-3-Clause. has no licence text"):
            notices.texts(crate(self.folder, licence="BSD-3-Clause"), "apache")

    def test_same_text_of_two_crates_stands_once(self):
        (self.folder / "LICENSE").write_text("Do what  you like.\n")
        text = notices.write([crate(self.folder), crate(self.folder, name="b")], [], "apache")
        self.assertEqual(text.count("Do what"), 1)
        self.assertIn("\na 1.0.0, b 1.0.0\n", text)


class SbomTest(unittest.TestCase):
    def test_serial_number_follows_the_contents(self):
        folder = pathlib.Path("/nowhere")
        ours = crate(folder, name="ailoop", checksum="")
        uses = {("ailoop", "1.0.0"): {("a", "1.0.0")}, ("a", "1.0.0"): set()}
        build = {"target": "t"}
        first = sbom.write([ours, crate(folder)], uses, [], build)
        self.assertEqual(first, sbom.write([ours, crate(folder)], uses, [], build))
        other = sbom.write([ours, crate(folder, licence="ISC")], uses, [], build)
        serial = re.compile(r"urn:uuid:[0-9a-f-]{36}")
        self.assertNotEqual(serial.search(first)[0], serial.search(other)[0])

    def test_old_way_to_write_two_licences_becomes_an_expression(self):
        self.assertEqual(sbom.expression("MIT/Apache-2.0"), "MIT OR Apache-2.0")


if __name__ == "__main__":
    unittest.main()
