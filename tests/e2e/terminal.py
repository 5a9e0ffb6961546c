"""A program on a terminal that is played: what its screen shows, as text, and keys for it."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading

import pyte
from cluster import TookTooLong, wait_until


class Terminal:
    # pyte does not scroll by several lines as xterm does; of a Linux console it knows all.
    def __init__(self, command, columns=80, lines=24, term="linux", locale="C.UTF-8"):
        self._master, slave = pty.openpty()
        self._screen, self._lock = pyte.Screen(columns, lines), threading.Lock()
        self._stream = pyte.ByteStream(self._screen)
        self._raw = b""
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environment = {**os.environ, "TERM": term, "LC_ALL": locale}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(list(map(str, command)), stdin=slave, stdout=slave, stderr=slave, env=environment,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # closed
                return
            with self._lock:
                self._raw += data
                self._stream.feed(data)

    def resize(self, columns, lines):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        with self._lock:
            self._screen.resize(lines, columns)

    def press(self, keys):
        os.write(self._master, keys.encode())

    def text(self):
        with self._lock:
            return "\n".join(line.rstrip() for line in self._screen.display)

    def wait_for(self, *words, seconds=20):
        """The screen, as soon as it has all of these."""
        return self.wait_until(lambda text: text if all(word in text for word in words) else "", f"the screen shows {words}", seconds)

    def wait_until_gone(self, word, seconds=20):
        self.wait_until(lambda text: word not in text, f"the screen does not show {word!r}", seconds)

    def wait_until(self, condition, what, seconds=20):
        """What the condition returns of the screen, as soon as that is true."""
        try:
            return wait_until(lambda: condition(self.text()), seconds, what)
        except TookTooLong as error:
            raise TookTooLong(f"{error}; it shows\n{self.text()}") from None

    def end(self, seconds=20):
        """The exit status; the terminal must be as it was before."""
        status = self.process.wait(seconds)
        assert termios.tcgetattr(self._slave) == self.before, "the terminal was left as the program needs it"
        wait_until(lambda: self.left_alternate_screen(), 5, "the program's screen is taken away")
        return status

    def left_alternate_screen(self):
        with self._lock:
            return self._raw.rfind(b"\x1b[?1049l") >= self._raw.rfind(b"\x1b[?1049h")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self._slave)
        os.close(self._master)
        self._reader.join(5)
