"""Conversation in -> explained selection out."""
