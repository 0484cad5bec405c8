"""An agent gives a part of its work to a colleague, and reports by mail. This program watches both, and reads the mail.

The tool `delegate` starts a session of another agent, a child, whose result is the result of the call. `send_mail` to
`user` reaches the mailbox of people. Both must be allowed in agents.yaml:

    tools: {allow: [delegate, send_mail]}

Needs `pip install ./sdk/python` and a fleet (`ailoop up`).
"""

from ailoop import Client

with Client() as client:
    session = client.start(None, "Let a colleague say hello.", interactive=True)
    print(session.turn().result().text)

    # A child is a session like any other: it has a parent, events and a transcript.
    for child in client.api.session_list(limit=100)["sessions"]:
        if child.get("parent") == session.id:
            turns = client.api.session_transcript(child["session_id"])["turns"]
            print(f"{child['agent']} answered: {turns[-1]['messages'][-1]['text']}")

    session.turn("Now post the report to the user.").result()
    for mail in client.api.mail_list()["mails"]:
        print(f"mail of {mail['from']}: {mail['subject']}")
        client.api.mail_reply(mail["id"], text="")  # an empty text closes it without an answer
    session.stop("done")
