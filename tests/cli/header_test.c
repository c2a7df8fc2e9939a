/* What bascule.h does with text and JSON; it prints what went wrong. */
#include "bascule.h"

static int wrong;

static void expect(const char *what, const char *found, const char *expected) {
    if (bsc_is_same(found ? found : "(nothing)", expected)) return;
    wrong++;
    bsc_print(what), bsc_print(": "), bsc_print(found ? found : "(nothing)"), bsc_print("\n");
}

static const char *read(const char *json, const char *path) {
    bsc_buffer out = {0};
    return bsc_read(json, path, &out) < 0 ? NULL : out.length ? out.data : "";
}

static void reading(void) {
    const char *json =
        " { \"a\" : [ 1 , {\"b\\\"}\": \"no\", \"b\": \"x\\n\\u00e9\\ud83d\\ude00\\/\\\\\" } , [] , true ] , "
        "\"ab\": {\"a\": null}, \"empty\": \"\", \"last\": -1.5e3 }";
    expect("a number in a list", read(json, "a.0"), "1 ");
    expect("escapes", read(json, "a.1.b"), "x\n\xc3\xa9\xf0\x9f\x98\x80/\\");
    expect("an empty list", read(json, "a.2"), "[] ");
    expect("beyond a list", read(json, "a.4"), "(nothing)");
    expect("a name that begins like another", read(json, "ab.a"), "null");
    expect("an empty text", read(json, "empty"), "");
    expect("the last", read(json, "last"), "-1.5e3 ");
    expect("a name that there is not", read(json, "b"), "(nothing)");
    expect("below a number", read(json, "last.x"), "(nothing)");
    expect("below an empty list", read("[]", "0"), "(nothing)");
    expect("no JSON", read("oops", "a"), "(nothing)");
    expect("nothing", read("", "a"), "(nothing)");
    expect("a text that is cut", read("{\"a\": \"hal", "a"), "hal");
    expect("an escape that is cut", read("{\"a\": \"x\\", "a"), "x");
    expect("digits that are cut", read("{\"a\": \"x\\u0041\\u", "a"), "xA");
}

static void writing(void) {
    bsc_buffer text = {0}, number = {0}, grown = {0};
    bsc_add_json(&text, "a\"b\\c\n\x01\xc3\xa9");
    expect("written escapes", text.data, "\"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9\"");
    bsc_add_number(&number, INT64_MIN), bsc_add(&number, " "), bsc_add_number(&number, 0);
    expect("numbers", number.data, "-9223372036854775808 0");
    for (int i = 0; i < 100000; i++) bsc_add(&grown, "0123456789");
    expect("a long text", grown.length == 1000000 && grown.data[999999] == '9' ? "grown" : "not", "grown");
    expect("too much", bsc_allocate(0x7fffffff) ? "given" : "refused", "refused");
    expect("the name of an error", bsc_error(-BSC_EACCES), "EACCES");
}

int guest(void) {
    reading();
    writing();
    return wrong;
}
