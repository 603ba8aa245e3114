"""Schedulers: each a pure function of what a scheduler may know."""

# How modules of users' own policies are called: what comes from them is recognised by it.
USER_MODULE = "trimtab_user_policy_"
