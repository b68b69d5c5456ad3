"""The tools with which policies fill hosts: a draft of the round, and whose VM goes where."""
