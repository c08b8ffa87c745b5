use serde_json::json;

use super::*;

fn render(template: &str, input: Json) -> Result<String, TemplateError> {
    let input: ChatInput = serde_json::from_value(input).unwrap();
    Template::try_new(template, Map::new())
        .unwrap()
        .render(&input)
}

#[test]
fn json_is_dumped_as_in_python() {
    let kwargs = json!({"messages": [], "chat_template_kwargs": {"x": {"b": [1, 2.0, null, true], "a": "é<\"\n\u{1}>"}}});
    let dump = |template| render(template, kwargs.clone()).unwrap();
    assert_eq!(
        dump("{{ x|tojson }}"),
        r#"{"b": [1, 2.0, null, true], "a": "é<\"\n\u0001>"}"#
    );
    assert_eq!(
        dump("{{ x.b|tojson(separators=(',', ':')) }}"),
        "[1,2.0,null,true]"
    );
    assert_eq!(
        dump("{{ x|tojson(indent=2, sort_keys=true, ensure_ascii=true) }}"),
        "{\n  \"a\": \"\\u00e9<\\\"\\n\\u0001>\",\n  \"b\": [\n    1,\n    2.0,\n    null,\n    true\n  ]\n}"
    );
    assert_eq!(dump("{{ []|tojson(indent=2) }}"), "[]");
}

#[test]
fn python_methods_answer() {
    let text = |template: &str| render(template, json!({"messages": []})).unwrap();
    assert_eq!(
        text("{{ ' a\u{1f}'.strip() }}{{ 'xxb'.lstrip('x') }}{{ 'bx'.rstrip('x') }}"),
        "abb"
    );
    assert_eq!(
        text("{{ 'a</t>b</t>c'.split('</t>')[-1] }}{{ 'a,b,c'.split(',', 1)[1] }}"),
        "cb,c"
    );
    assert_eq!(
        text("{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('b') }}"),
        "TrueFalse"
    );
    assert_eq!(
        text("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {}.get('x', 'd') }}"),
        "a1d"
    );
}

#[test]
fn a_final_message_can_be_continued() {
    let input = json!({"messages": [{"role": "assistant", "content": "so far "}], "continue_final_message": true});
    let plain = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
    assert_eq!(render(plain, input.clone()).unwrap(), "<so far ");
    let trimming = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
    assert_eq!(render(trimming, input).unwrap(), "<so far");
}

#[test]
fn developer_messages_join_the_system_message() {
    let input = json!({"messages": [{"role": "user", "content": "u"}, {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}]});
    let template = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}";
    assert_eq!(
        render(template, input.clone()).unwrap(),
        "system=s\n\nd;user=u;"
    );
    let naming = "{# developer #}{% for m in messages %}{{ m.role }};{% endfor %}";
    assert_eq!(render(naming, input).unwrap(), "user;system;developer;");
}

#[test]
fn parts_reach_templates_that_loop_over_them() {
    let input =
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}]});
    let looping =
        "{% for m in messages %}{%- for p in m['content'] %}[{{ p.text }}]{% endfor %}{% endfor %}";
    assert_eq!(render(looping, input.clone()).unwrap(), "[a][b]");
    assert_eq!(render("{{ messages[0].content }}", input).unwrap(), "a\nb");
}

#[test]
fn refused_requests_say_why() {
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]});
    assert_eq!(
        render("", image).unwrap_err().to_string(),
        "message 0 is not supported: a part is not text"
    );
    let raised = render("{{ raise_exception('no tools') }}", json!({"messages": []})).unwrap_err();
    let TemplateError::Render(source) = raised else {
        panic!("{raised}")
    };
    assert!(source.to_string().contains("no tools"));
}
