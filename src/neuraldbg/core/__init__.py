"""The Hub: from facts and readings to causes. Knows no framework."""
