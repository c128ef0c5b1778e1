from railwright.fabric.nccl import catalogue

NUMBERS = [row for row in catalogue.list_variables() if isinstance(row.allowed, catalogue.Range)]
WORDS = [row for row in catalogue.list_variables() if isinstance(row.allowed, catalogue.Enumeration)]
# NCCL's own symbol, not a word anybody can write (src/include/debug.h)
UNWRITABLE = {"NCCL_DEBUG"}


def test_the_catalogue_has_each_variable_once_in_alphabetical_order():
    rows = catalogue.list_variables()
    assert len(rows) == len({row.name for row in rows}) == 459
    assert list(rows) == sorted(rows, key=lambda row: row.name)
    assert all(catalogue.find_variable(row.name) is row for row in rows)
    assert sum(row.parser == "strtoll-base0" for row in rows) == 197


def test_the_catalogue_allows_the_default_of_each_variable():
    defaults = [row for row in catalogue.list_variables() if row.default_text is not None]
    assert {row.name for row in defaults if not row.allows(row.default_text)} <= UNWRITABLE


def test_a_range_includes_both_ends_and_nothing_beyond():
    for row in NUMBERS:
        top = catalogue.OVERFLOW - 1 if row.allowed.max is None else row.allowed.max
        for good in (row.allowed.min, top):
            assert row.allows(str(good)), (row.name, good)
        for bad in (row.allowed.min - 1, top + 1):
            assert row.allows(str(bad)) == (str(bad) == row.default_text), (row.name, bad)


def test_each_word_of_a_list_is_allowed_in_any_case_unless_the_variable_is_case_sensitive():
    for row, value in [(word, value) for word in WORDS for value in word.allowed.values]:
        assert row.allows(value), (row.name, value)
        if value.isalpha():
            assert row.allows(value.swapcase()) != row.allowed.case_sensitive, (row.name, value)
        assert not row.allows(value + "x"), (row.name, value)
        assert not row.allows("") or row.default_text == "", row.name


def test_a_number_consists_of_decimal_digits_only():
    for text in ("", "true", "0x10", "010", "22s", " 7", "7 ", "+7", "\u0667", "7\n", "9" * 5000):
        assert not catalogue.find_variable("NCCL_IB_TIMEOUT").allows(text), text
        assert not catalogue.find_variable("NCCL_MNNVL_UUID").allows(text), text  # a number without a range


MEANT = {
    "NCCL_IB_HAC": "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAMES": "NCCL_SOCKET_IFNAME",
    "NCCL_IB_TIMEOUTS": "NCCL_IB_TIMEOUT",
    "NCCL_IB_GID_INDX": "NCCL_IB_GID_INDEX",
    "NCCL_DEBUG_SUBSYSTEMS": "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_QPS_PER_CONN": "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_BI_HCA": "NCCL_IB_HCA",
    "NCCL_GID_INDEX": "NCCL_IB_GID_INDEX",
    "NCCL_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_TC": "NCCL_IB_TC",
    "nccl_debug": None,
    "NCCL_": None,
    "NCCL_QWXYZ": None,
    "NCCL_" + "IB_HCA" * 1000: None,
}


def test_for_a_misspelt_variable_the_most_similar_name_is_suggested():
    assert {wrong: catalogue.suggest_name(wrong) for wrong in MEANT} == MEANT
