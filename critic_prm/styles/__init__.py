"""Prompt styles: turn a trajectory into messages, and a reply into a judgement."""
