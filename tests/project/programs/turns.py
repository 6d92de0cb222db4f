"""A conversation that `@persist` keeps: each message is a turn of its state."""

from model import Noting

from crewlite.flow import Flow, listen, persist, start

llm = Noting()


@persist()
class Chat(Flow):
    @start()
    def hear(self):
        self.state["said"] = [*self.state.get("said", []), self.state["message"]]

    @listen(hear)
    def answer(self):
        return f"{llm.call(' '.join(self.state['said']))}"


if __name__ == "__main__":
    first = Chat()
    print(first.kickoff(inputs={"message": "hello"}))
    for message in ("yes", "yes", "no"):
        print(Chat().kickoff(inputs={"id": first.state["id"], "message": message}))
