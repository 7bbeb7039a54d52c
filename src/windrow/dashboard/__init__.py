"""The dashboard: pages over the management API, as the user who has signed in.

`site` answers requests and knows no sockets; `http` serves it; `sessions` has who is signed in; `guard` refuses what another
site sent; `changes` tells open pages that what they show has changed; `rendering` makes HTML of values. What a page
shows is read by `pages/`, from the API alone and with the user's own rights.
"""
