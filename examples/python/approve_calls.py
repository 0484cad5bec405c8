"""A person approves what an agent does: each call of `send_invoice` waits for an answer at this terminal.

Needs `pip install ./sdk/python` and a fleet (`ailoop up`). The rule that asks is in agents.yaml:

    approvals: [{tool: send_invoice, ask: always}]
"""

import asyncio
import sys

from ailoop import AsyncClient, Decision, Gate, client_tool


@client_tool(effect="at_most_once", timeout=60)
def send_invoice(customer: str, euros: float) -> str:
    """Sends an invoice to a customer."""
    return f"sent an invoice of {euros:g} € to {customer}"  # your own code stands here


def approve(gate: Gate) -> Decision | bool:
    """Decides about a call. It may take an hour: the session waits, and so does its clock."""
    answer = input(f"Let it run {gate.tool}({gate.arguments})? [y/n, or another amount] ").strip()
    if answer.replace(".", "").isdigit():
        return Decision("approve", arguments={**gate.arguments, "euros": float(answer)})
    return True if answer == "y" else Decision("deny", note="the person at the terminal declined")


def answer_question(gate: Gate) -> str:
    """Answers a question of the model."""
    return input(f"{gate.arguments['question']} ")


async def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "Send the invoice of 120 € to Acme."
    async with AsyncClient() as client:  # AILOOP_URL and AILOOP_API_KEY name the fleet and the key
        result = await client.run(
            None, prompt, tools=[send_invoice], on_approval=approve, on_question=answer_question
        )
        print(result.text)


asyncio.run(main())
