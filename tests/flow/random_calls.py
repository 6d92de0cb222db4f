"""Random programs that call a model, and make other calls in each life. They are plain data, and one function takes each."""

import threading

from crewlite import bound
from crewlite.flow import step
from crewlite.testing import ScriptedLLM


def answer(messages):
    if "fail" in (said := messages[-1]["content"]):
        raise ValueError(f"no {said}")
    return f"re: {said}"


LLM, PAID, COURSE = ScriptedLLM(answer), [], []


@step
def tell(text):
    return f"told {text}"


@step
def deep(number):
    return tell(ask(f"deep {number}"))


@step(effect="once")
def pay(what):
    PAID.append(what)


@step
def judge(number):
    """Come to what depends on all calls so far, although no question tells so."""
    if sum(map(ord, "".join(COURSE))) % 3 == 0:
        raise RuntimeError(f"{number} is bad after {COURSE}")
    return f"{number} is good after {COURSE}"


def ask(text):
    try:
        return str(LLM.call(text))
    except ValueError as error:
        return f"caught {error}"


def ask_in_a_thread(text):
    heard = []
    asking = threading.Thread(target=bound(lambda: heard.append(ask(text))))
    asking.start()
    asking.join()
    return heard[0]


def same_steps(chance):
    """Three worlds in which a program takes the same steps, and some calls are missing, other ones or added."""
    kinds = ["call", "call", "fail", "tell", "say", "pay", "deep", "call in a thread", "fail in a thread"]
    acts = [(chance.choice(kinds), number) for number in range(chance.randint(2, 7))]
    worlds = []
    for _ in range(3):
        world = [act for act in acts if act[0][:4] not in ("call", "fail") or chance.random() < 0.7]
        if chance.random() < 0.4:
            world.insert(chance.randint(0, len(world)), ("call", 9))
        worlds.append(world)
    return worlds


def take_the_same_steps(acts, world):
    said, results = "", []
    for act, number in acts:
        if act[:4] in ("call", "fail"):
            asking = ask_in_a_thread if "thread" in act else ask
            said = asking(f"{act[:4]} {number} in world {world if number % 2 else 'any'}")
        elif act == "pay":
            pay("a gift")
        else:
            results.append(deep(number) if act == "deep" else tell(number if act == "tell" else said))
    return [*results, said]


def other_courses(chance):
    """Two to four lists of acts, each with up to two calls, or steps, more or changed than the one before."""
    acts = [(chance.choice(["call", "fail", "judge", "judge"]), chance.randint(1, 3)) for _ in range(6)]
    courses = [acts[: chance.randint(2, 6)]]
    for _ in range(chance.randint(1, 3)):
        acts = list(courses[-1])
        for _ in range(chance.randint(0, 2)):
            new = chance.choice(["call", "fail"]), chance.randint(10, 99)
            calls = [at for at, (act, _) in enumerate(acts) if act in ("call", "fail")]
            match chance.choice(["add", "add", "change", "tell"]):
                case "change" if calls:
                    acts[chance.choice(calls)] = new
                case "tell":
                    acts.insert(chance.randint(0, len(acts)), ("tell", new[1]))
                case _:
                    acts.insert(chance.randint(0, len(acts)), new)
        courses.append(acts)
    return courses


def take_this_course(acts, world):
    COURSE.clear()
    results = []
    for act, number in acts:
        if act == "judge":
            try:
                results.append(judge(number))
            except RuntimeError as error:
                results.append(str(error))
            continue
        results.append(tell(number) if act == "tell" else ask(f"{act} {number}"))
        COURSE.append(f"{act} {number}")
    return results
