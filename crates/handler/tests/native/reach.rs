//! What of an object its handler can reach: the checks must see all of it, and whether it writes.

use std::fs;

use afterimage_handler::EventConfig;
use afterimage_handler::object::{Limits, Object, Rule};
use afterimage_testkit::{Need, has, objects};

#[test]
fn old_values_and_callbacks_are_followed() {
    if !has("old_values_and_callbacks_are_followed", &[Need::Clang]) {
        return;
    }
    let bytes = fs::read(objects::build().join("reach.bpf.o")).unwrap();
    let open = |program| Object::open(bytes.clone(), Some(program), &[]).unwrap();
    assert!(open("counted").writes());
    let event = EventConfig { callchain: true, max_stack: 119, ..EventConfig::default() };
    let limits = Limits { context: true, max_stack: 127, contexts: 8 };
    let refused = open("called_back").refusals(&[event], &limits);
    assert_eq!(refused.iter().map(|refusal| refusal.rule).collect::<Vec<_>>(), [Rule::TaskStack], "{refused:?}");
    assert_eq!(refused[0].place.source(), Some("task_stack(bpf_get_current_task(), stack, sizeof(stack), 0);"));
}
