"""Fault injectors and assertions for test suites, and a generator of faulty programs."""
