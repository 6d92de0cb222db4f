"""crewlite's use of litellm leaves the program's own use of it as it is."""

from __future__ import annotations

import asyncio

from server import CLOSE, reply

from crewlite.llm import library

LOST = [b"no answer\r\n\r\n", CLOSE]


def test_litellm_asks_again_for_others_and_once_for_crewlite(serve, monkeypatch):
    async def posts(address):
        monkeypatch.setattr(await library.litellm(), "disable_aiohttp_transport", True)
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler  # seconds, which only this test needs

        client = AsyncHTTPHandler()
        try:
            return (await client.post(f"{address}/x", json={})).status_code
        except Exception as error:  # of whichever library it is
            return type(error).__name__
        finally:
            await client.close()

    async def once(address):
        with library.asking_once():
            return await posts(address)

    theirs, ours = serve(LOST, reply({})), serve(LOST, reply({}))
    assert (asyncio.run(posts(theirs.address)), len(theirs.requests)) == (200, 2)
    assert asyncio.run(once(ours.address)) != 200
    assert len(ours.requests) == 1
