"""A unit with a mistake that systemd itself would only mutter about does not pass."""

import shutil
import tempfile
import unittest
from pathlib import Path

import unit

GOOD = """[Service]
ExecStart=/nowhere/bin/gradringd
User=gradring
CapabilityBoundingSet=
NoNewPrivileges=yes
PrivateDevices=yes
PrivateUsers=yes
PrivateNetwork=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
Environment=CUDA_MPS_PIPE_DIRECTORY=/run/gradring/mps
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def complaints_about(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "gradringd.service"
            path.write_text(text)
            return list(unit.check(path))

    def test_a_good_unit_passes(self):
        self.assertEqual(self.complaints_about(GOOD), [])

    def test_an_unknown_key_is_found(self):
        found = self.complaints_about(GOOD + "WatchdogSecs=5\n")
        self.assertIn("WatchdogSecs", found[0])

    def test_a_bad_value_is_found(self):
        found = self.complaints_about(GOOD + "ProtectHostname=perhaps\n")
        self.assertIn("perhaps", found[0])

    def test_a_missing_program_is_found(self):
        found = self.complaints_about(GOOD + "ExecReload=/nowhere/kill -HUP $MAINPID\n")
        self.assertIn("/nowhere/kill", found[0])

    def test_a_unit_that_finds_no_mps_is_found(self):
        for instead in ("", "Environment=CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\n"):
            found = self.complaints_about(GOOD.replace("Environment=CUDA_MPS_PIPE_DIRECTORY=/run/gradring/mps\n", instead))
            self.assertIn("MPS", found[0])

    def test_a_careless_unit_is_found(self):
        found = self.complaints_about("[Service]\nExecStart=/nowhere/bin/gradringd\n")
        self.assertIn("exposed", found[0])


if __name__ == "__main__":
    unittest.main()
