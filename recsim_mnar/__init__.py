"""Simulated people, recommendations and logs whose known truth judges evaluation protocols."""
