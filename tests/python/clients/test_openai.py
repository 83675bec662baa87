"""The openai package: completions, chats, streams, errors, and a client that goes away."""
import time
import urllib.request

import openai
import pytest


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0)


def metric(server, name):
    """A value of /metrics, of the only model."""
    lines = urllib.request.urlopen(f"{server}/metrics").read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def test_models(client):
    assert [model.id for model in client.models.list()] == ["run"]
    assert client.models.retrieve("run").object == "model"


def test_completion(client):
    done = client.completions.create(model="run", prompt=["The king", "My lord"], max_tokens=9, temperature=0, logprobs=3, n=1)
    assert [choice.index for choice in done.choices] == [0, 1]
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    for choice in done.choices:
        assert choice.finish_reason == "length" and len(choice.logprobs.tokens) == 9
        assert "".join(choice.logprobs.tokens) == choice.text
        assert all(max(top.values()) == pytest.approx(value, abs=1e-6)
                   for top, value in zip(choice.logprobs.top_logprobs, choice.logprobs.token_logprobs))


def test_stream_has_the_same_text(client):
    request = dict(model="run", prompt="The king", max_tokens=24, seed=3, temperature=0.8)
    whole = client.completions.create(**request)
    events = list(client.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].text for event in events if event.choices) == whole.choices[0].text
    assert events[-1].usage == whole.usage or events[-1].usage.total_tokens == whole.usage.total_tokens


def test_chat(client):
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Who are you?"}]
    request = dict(model="run", messages=messages, max_tokens=12, seed=5, logprobs=True, top_logprobs=2)
    whole = client.chat.completions.create(**request)
    message = whole.choices[0].message
    assert message.role == "assistant"
    assert "".join(token.token for token in whole.choices[0].logprobs.content) == message.content
    parts = [event.choices[0].delta.content or "" for event in client.chat.completions.create(**request, stream=True)
             if event.choices]
    assert "".join(parts) == message.content and len(parts) > 3


def test_errors(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="absent", prompt="a")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="run", prompt="a", suffix="b")
    assert caught.value.param == "suffix"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="run", messages=[{"role": "user", "content": "a"}], temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="run", prompt="word " * 600, max_tokens=4)
    assert caught.value.code == "context_length_exceeded"


def test_a_client_that_goes_away_ends_its_request(client, server):
    stream = client.completions.create(model="run", prompt="The king", max_tokens=480, stream=True, n=4,
                                       extra_body={"ignore_end": True})
    next(iter(stream))
    stream.close()
    end = time.monotonic() + 20
    while metric(server, "llamacpp:requests_processing") > 0:
        assert time.monotonic() < end
