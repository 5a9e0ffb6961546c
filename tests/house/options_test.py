"""An option that the documents lack, that they invented, or whose default they have wrong is found."""

import unittest

import options

HELP = """usage: gradringd [SETTING]...

Command line only:
  --config FILE     INI file [/etc/x, if it exists]
  --check-config    check everything

Settings:
  --listen ADDRESS:PORT   where peers reach this daemon; its network also
                          carries the gradients [127.0.0.1:7300]
  --peer HOST:PORT        another daemon
  --insecure [=arg(=true)]  no encryption [false]

Precedence: flag [first].
"""
TABLE = """## Options
| `listen` | `127.0.0.1:7300` | where |
| `peer` | | another |
| `insecure` | `false` | none |
## Next
| `other` | | not ours |
"""
SAMPLE = "# a comment\n#listen = 127.0.0.1:7300\n#peer = a:1\n#insecure = false\n"


def complaints(table=TABLE, sample=SAMPLE):
    return list(options.compare(options.options_of_help(HELP), options.options_of_table(table),
                                options.options_of_sample(sample)))


class Options(unittest.TestCase):
    def test_true_documents(self):
        self.assertEqual(complaints(), [])

    def test_a_missing_option(self):
        self.assertIn("does not have peer", complaints(table=TABLE.replace("`peer`", "peer"))[0])
        self.assertIn("does not have insecure", complaints(sample=SAMPLE.replace("#insecure", "#"))[0])

    def test_an_invented_option(self):
        self.assertIn("has magic", complaints(sample=SAMPLE + "#magic = 1\n")[0])

    def test_a_wrong_default(self):
        self.assertIn("default is '127.0.0.1:7300'", complaints(table=TABLE.replace("7300", "7301"))[0])


if __name__ == "__main__":
    unittest.main()
