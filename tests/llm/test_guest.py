"""What litellm does with a request that crewlite gives it."""

from __future__ import annotations

import asyncio

import pytest
from server import CLOSE, reply

from crewlite.llm import library

LOST = [b"no answer\r\n\r\n", CLOSE]


@pytest.mark.parametrize("without_aiohttp", [True, False])
def test_a_request_whose_connection_is_lost_is_not_sent_again(serve, monkeypatch, without_aiohttp):
    """A request that was sent may be paid, so a second one would be paid twice, and nobody would hear of it."""

    async def posted():
        monkeypatch.setattr(await library.litellm(), "disable_aiohttp_transport", without_aiohttp)
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler  # seconds, which only this test needs

        client = AsyncHTTPHandler()
        try:
            return (await client.post(f"{server.address}/x", json={})).status_code
        except Exception as error:  # of whichever library it is
            return type(error).__name__
        finally:
            await client.close()

    server = serve(LOST, reply({}))
    assert asyncio.run(posted()) != 200
    assert len(server.requests) == 1
