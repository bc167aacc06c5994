"""Static pages and notebook outputs: code listings, reports, comparisons, and the page of an inspection."""
