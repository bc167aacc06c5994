"""Static pages and notebook outputs: listings, reports, and the page of an inspection."""
