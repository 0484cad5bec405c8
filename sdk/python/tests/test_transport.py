"""Where a key is sent, without a fleet."""

import unittest

from ailoop import AccessDenied, AsyncClient, Client


class Plaintext(unittest.IsolatedAsyncioTestCase):
    async def test_key_is_not_sent_in_clear_to_another_machine(self) -> None:
        for url in ("http://agents.example.org", "HTTP://10.0.0.1:7070", "http://127.0.0.1.example.org", "http://[fd00::1]"):
            for make in (AsyncClient, Client):
                with self.assertRaises(AccessDenied, msg=url) as raised:
                    make(url, "key")
                self.assertEqual(raised.exception.code, "unauthorized")
                self.assertIn("plaintext=True", raised.exception.message)

    async def test_key_is_sent_to_this_machine_over_tls_or_where_the_program_says_so(self) -> None:
        for url in ("http://127.0.0.1:7070", "http://localhost", "http://[::1]:7070", "https://agents.example.org"):
            await AsyncClient(url, "key").close()
        await AsyncClient("http://agents.example.org", "key", plaintext=True).close()
        await AsyncClient("http://agents.example.org", "").close()


if __name__ == "__main__":
    unittest.main()
