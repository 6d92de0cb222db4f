"""Answers of a shape, over the wire: asked for where the model is known to keep to it, checked always."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, RootModel
from server import CLOSE, call, calling, chat, error, piece, reply, stream

from crewlite import LLM, Agent, Crew, History, Task, tool
from crewlite.errors import LLMRejected, OutputInvalid


class Tide(BaseModel):
    port: str
    metres: float


FITS_TEXT = '{"port": "Brest", "metres": 6.9}'
FITS = reply(chat(FITS_TEXT))
CUT = reply(chat('{"port": "Brest", "met', finish="length"))
WORDS = reply(chat("About seven metres."))


def pilot(server, model="openai/gpt-4o", tools=(), **settings):
    llm = LLM(model, base_url=server.base_url, api_key="k", **settings)
    return Agent(role="Pilot", goal="answer", llm=llm, tools=tools)


def test_a_model_that_is_listed_as_able_is_sent_the_schema(serve):
    server = serve(FITS)
    said = pilot(server).kickoff("How high?", response_format=Tide)
    assert said.pydantic == Tide(port="Brest", metres=6.9)
    sent = server.requests[0].body["response_format"]
    assert (sent["type"], sent["json_schema"]["name"]) == ("json_schema", "Tide")
    assert set(sent["json_schema"]["schema"]["properties"]) == {"port", "metres"}


def test_a_model_that_nothing_is_known_of_is_told_in_words(serve):
    server = serve(FITS)
    assert pilot(server, "openai/foo").kickoff("How high?", response_format=Tide).pydantic.metres == 6.9
    assert "response_format" not in server.requests[0].body


def test_with_tools_on_offer_the_schema_is_not_sent_for_it_would_bind_every_turn(serve):
    @tool
    def look() -> str:
        """Look."""
        return "6.9"

    server = serve(reply(calling(call("look"))), FITS)
    assert pilot(server, tools=[look]).kickoff("How high?", response_format=Tide).pydantic.metres == 6.9
    assert not [request for request in server.requests if "response_format" in request.body]


def test_a_list_is_told_in_words_as_services_take_schemas_of_objects_alone(serve):
    server = serve(reply(chat('[{"port": "Brest", "metres": 6.9}]')))
    said = pilot(server).kickoff("How high?", response_format=RootModel[list[Tide]])
    assert said.pydantic.root[0].metres == 6.9
    assert "response_format" not in server.requests[0].body


def test_a_schema_that_the_service_refuses_is_told_in_words_alone(serve, caplog):
    server = serve(error(400, "This response_format type is unavailable now"), FITS)
    assert pilot(server).kickoff("How high?", response_format=Tide).pydantic.metres == 6.9
    assert ["response_format" in request.body for request in server.requests] == [True, False]
    assert "openai/gpt-4o refused the schema of the answer, so it is told in words alone: This" in caplog.text


@pytest.mark.parametrize("status", [400, 401])
def test_a_refusal_for_another_reason_is_an_error(serve, status):
    server = serve(*[error(status, "no")] * 2)
    with pytest.raises(LLMRejected, match="no"):
        pilot(server).kickoff("How high?", response_format=Tide)
    assert len(server.requests) == (2 if status == 400 else 1)


def test_a_refusal_in_the_middle_of_a_stream_is_an_error_as_what_was_sent_is_paid(serve):
    refusal = {"error": {"message": "no", "type": "t", "param": None, "code": 400}}
    server = serve(*[stream(piece("{"), refusal)] * 2)
    with pytest.raises(LLMRejected, match="no"):
        pilot(server, stream=True).kickoff("How high?", response_format=Tide)
    assert len(server.requests) == 1


def test_a_schema_that_is_refused_when_the_first_piece_of_a_stream_is_asked_for_is_told_in_words_alone(serve):
    """litellm sends a streamed request to Gemini only then."""
    said = {"candidates": [{"content": {"parts": [{"text": FITS_TEXT}], "role": "model"}, "finishReason": "STOP"}]}
    server = serve(error(400, "Unknown name in the schema"), stream(said, end=(CLOSE,)))
    told = pilot(server, "gemini/gemini-2.5-flash", stream=True).kickoff("How high?", response_format=Tide)
    assert told.pydantic.metres == 6.9
    assert ["generationConfig" in request.body for request in server.requests] == [True, False]


@pytest.mark.parametrize("wanted", [Tide, {"type": "json_object"}], ids=["a class", "as it is"])
def test_a_response_format_of_the_model_is_sent_whatever_the_model(serve, wanted):
    server = serve(FITS)
    LLM("openai/foo", base_url=server.base_url, response_format=wanted).call("How high?")
    sent = server.requests[0].body["response_format"]
    assert sent["type"] == ("json_object" if isinstance(wanted, dict) else "json_schema")


def test_the_text_of_a_call_says_how_to_get_an_object(serve):
    server = serve(FITS, FITS)
    llm = LLM("openai/foo", base_url=server.base_url, response_format=Tide)
    said = llm.call("How high?")
    for wanted in ("metres", "model_dump_json"):
        with pytest.raises(
            AttributeError, match=rf"no '{wanted}'. To get an object: llm.ask\(messages, response_format="
        ):
            getattr(said, wanted)
    assert Tide.model_validate_json(said) == llm.ask("How high?", response_format=Tide)


@pytest.mark.parametrize("misfit", [CUT, WORDS, reply(chat('{"port": "Brest"}'))], ids=["cut", "words", "a field less"])
def test_a_misfit_goes_back_with_what_is_wrong_with_it(serve, misfit):
    server = serve(misfit, FITS)
    assert pilot(server).kickoff("How high?", response_format=Tide).pydantic.metres == 6.9
    assert len(server.requests) == 2
    wrong, mend = server.requests[1].body["messages"][-2:]
    assert wrong["role"] == "assistant"
    assert mend["role"] == "user"
    assert "metres" in mend["content"]


def test_after_three_misfits_the_run_fails_and_a_new_kickoff_tries_anew(serve):
    server = serve(CUT, WORDS, CUT, FITS)
    task = Task(description="How high?", expected_output="JSON", output_pydantic=Tide, agent=pilot(server))
    crew = Crew(tasks=[task], checkpoint=True)
    with pytest.raises(OutputInvalid) as caught:
        crew.kickoff(run_id="r")
    assert len(server.requests) == 3
    assert "does not fit the output schema after 3 tries" in str(caught.value)
    with History(".checkpoints") as history:
        assert history.run("r").status == "failed"
        assert history.run("r").tasks == ()
    assert crew.kickoff(run_id="r").pydantic.metres == 6.9
    assert len(server.requests) == 4
